#include "server/devices.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/exec/cpu_device.h"
#include "core/exec/cuda_device.h"
#include "kernels/base/status.h"
#include "server/exit_codes.h"
#include "server/logging.h"

namespace gemmd {
namespace {

using Devices = std::vector<std::unique_ptr<Device>>;

void LogKernel(const KernelNotice& notice) {
  const std::string error(notice.status.message());
  switch (notice.kind) {
    case KernelNotice::Kind::kReady:
      return Log(LogLevel::kDebug, "specialised kernel ready",
                 {{"device", notice.device}, {"kernel", notice.kernel}});
    case KernelNotice::Kind::kFailed:
      return LogWarn("specialised kernel not available; the generic one serves",
                     {{"device", notice.device}, {"kernel", notice.kernel}, {"error", error}});
    case KernelNotice::Kind::kQuarantined:
      return LogError("kernel failed its self-test and is not used",
                      {{"device", notice.device}, {"kernel", notice.kernel}, {"error", error}});
  }
}

absl::StatusOr<Devices> OpenGpus(const Config& config, const KernelStore& kernels,
                                 std::shared_ptr<TuningStore> tuning,
                                 KernelNoticeFunction on_kernel) {
  if (config.device == DeviceChoice::kCpu) return Devices();
  absl::StatusOr<Devices> gpus = CreateCudaDevices({.cache = kernels.cache(),
                                                    .serve_first = true,
                                                    .compile_common = true,
                                                    .tuning = std::move(tuning),
                                                    .on_kernel = std::move(on_kernel)});
  if (gpus.ok() && !gpus->empty()) return gpus;
  const std::string why =
      gpus.ok() ? "this machine has no GPU" : std::string(gpus.status().message());
  if (config.device == DeviceChoice::kCuda) {
    return Error(absl::StatusCode::kUnavailable, kNoDevice, absl::StrCat("no usable GPU: ", why));
  }
  LogInfo("running without a GPU", {{"why", why}});
  return Devices();
}

}  // namespace

absl::StatusOr<Devices> OpenDevices(const Config& config, const KernelStore& kernels,
                                    std::shared_ptr<TuningStore> tuning,
                                    KernelNoticeFunction on_kernel) {
  GEMMD_ASSIGN_OR_RETURN(
      Devices devices,
      OpenGpus(config, kernels, std::move(tuning),
               [next = std::move(on_kernel)](const KernelNotice& notice) {
                 LogKernel(notice);
                 next(notice);
               }));
  devices.push_back(CreateCpuDevice({config.cpu_threads}));
  for (const auto& device : devices) {
    const DeviceDescription& description = device->description();
    LogInfo("device opened", {{"device", description.id},
                              {"name", description.name},
                              {"architecture", description.architecture},
                              {"memory_bytes", description.memory_bytes}});
  }
  return devices;
}

}  // namespace gemmd
