#include "tests/bench/device/gpu_monitor.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/bench/device/shared_library.h"

namespace gemmd::bench {
namespace {

// Values of NVML's enumerations.
constexpr int kClockSm = 1;
constexpr int kClockMemory = 2;
constexpr int kTemperatureGpu = 0;

}  // namespace

GpuMonitor::GpuMonitor(const std::string& uuid) {
  const absl::StatusOr<SharedLibrary> nvml = SharedLibrary::Load("", {"libnvidia-ml.so.1"});
  if (!nvml.ok()) return;
  usable_ = nvml->Find("nvmlInit_v2", functions_.init).ok() &&
            nvml->Find("nvmlDeviceGetHandleByUUID", functions_.find).ok() &&
            nvml->Find("nvmlSystemGetDriverVersion", functions_.driver_version).ok() &&
            nvml->Find("nvmlDeviceGetClockInfo", functions_.clock).ok() &&
            nvml->Find("nvmlDeviceGetMaxClockInfo", functions_.max_clock).ok() &&
            nvml->Find("nvmlDeviceGetTemperature", functions_.temperature).ok() &&
            nvml->Find("nvmlDeviceGetPowerUsage", functions_.power).ok() &&
            functions_.init() == 0 && functions_.find(uuid.c_str(), &device_) == 0;
}

std::string GpuMonitor::driver_version() const {
  char version[96] = "";
  if (!usable_ || functions_.driver_version(version, sizeof(version)) != 0) return "unknown";
  return version;
}

int GpuMonitor::max_sm_mhz() const {
  unsigned mhz = 0;
  return usable_ && functions_.max_clock(device_, kClockSm, &mhz) == 0 ? static_cast<int>(mhz) : 0;
}

int GpuMonitor::max_memory_mhz() const {
  unsigned mhz = 0;
  const bool read = usable_ && functions_.max_clock(device_, kClockMemory, &mhz) == 0;
  return read ? static_cast<int>(mhz) : 0;
}

GpuState GpuMonitor::Read() const {
  GpuState state;
  if (!usable_) return state;
  unsigned value = 0;
  if (functions_.clock(device_, kClockSm, &value) == 0) state.sm_mhz = static_cast<int>(value);
  if (functions_.clock(device_, kClockMemory, &value) == 0) {
    state.memory_mhz = static_cast<int>(value);
  }
  if (functions_.temperature(device_, kTemperatureGpu, &value) == 0) {
    state.celsius = static_cast<int>(value);
  }
  if (functions_.power(device_, &value) == 0) state.watts = value / 1000.0;
  return state;
}

}  // namespace gemmd::bench
