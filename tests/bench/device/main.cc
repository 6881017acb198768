// gemmd_bench: see gemmd_bench --help and tests/bench/README.md.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "core/exec/cuda_device.h"
#include "kernels/base/status.h"
#include "kernels/cuda/device_info.h"
#include "kernels/cuda/driver.h"
#include "kernels/tuning.h"
#include "tests/bench/device/runner.h"
#include "tests/bench/host/manifest.h"

namespace gemmd::bench {
namespace {

constexpr int kExitIncomplete = 1;
constexpr int kExitUsage = 64;
constexpr int kExitUnavailable = 69;
constexpr int kExitCannotCreate = 73;
constexpr int kExitCannotRead = 74;

int Fail(int code, const absl::Status& status) {
  std::cerr << "gemmd_bench: " << std::string(status.message()) << "\n";
  return code;
}

absl::StatusOr<std::vector<Problem>> ReadProblems(const Options& options) {
  std::ifstream file(options.suite);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return absl::NotFoundError(absl::StrCat("cannot read ", options.suite));
  GEMMD_ASSIGN_OR_RETURN(const std::vector<Problem> problems, ParseSuite(text.str()));
  std::vector<Problem> kept = Narrow(problems, options.filter);
  if (kept.empty()) {
    return absl::NotFoundError(absl::StrCat("no point of ", options.suite, " passes the filters"));
  }
  return kept;
}

// Everything that must be there before the first point; members are destroyed in reverse order.
struct Machine {
  const cuda::DriverTable* driver = nullptr;
  cuda::DeviceInfo info;
  std::unique_ptr<CuptiTimer> timer;
  std::unique_ptr<Device> device;
  std::optional<cuda::PrimaryContext> context;
};

absl::StatusOr<cuda::DeviceInfo> FindGpu(const cuda::DriverTable& driver, const std::string& id) {
  GEMMD_ASSIGN_OR_RETURN(const std::vector<cuda::DeviceInfo> gpus, cuda::ListGpus(driver));
  for (const cuda::DeviceInfo& info : gpus) {
    if (absl::StrCat("cuda:", info.uuid) == id) return info;
  }
  return absl::NotFoundError(absl::StrCat("the driver does not list ", id));
}

// As the daemon's.
std::filesystem::path TuningDirectory(const std::string& cache_directory) {
  if (cache_directory.empty()) return {};
  return std::filesystem::path(cache_directory) / "tuning";
}

absl::StatusOr<Machine> OpenMachine(const Options& options) {
  Machine machine;
  const absl::StatusOr<const cuda::DriverTable*> driver = cuda::LoadDriver();
  if (!driver.ok()) return Annotate(driver.status(), "no GPU");
  machine.driver = *driver;
  GEMMD_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Device>> devices,
                         CreateCudaDevices({.cache_directory = options.cache_dir,
                                            .tuning = TuningStore::Open(
                                                {.directory = TuningDirectory(options.cache_dir)})}));
  if (static_cast<size_t>(options.device) >= devices.size()) {
    return absl::NotFoundError(absl::StrCat("no GPU number ", options.device, ": ", devices.size(),
                                            " usable ones on this machine"));
  }
  machine.device = std::move(devices[static_cast<size_t>(options.device)]);
  GEMMD_ASSIGN_OR_RETURN(machine.info, FindGpu(**driver, machine.device->description().id));
  GEMMD_ASSIGN_OR_RETURN(machine.context,
                         cuda::PrimaryContext::Retain(**driver, machine.info.ordinal));
  GEMMD_ASSIGN_OR_RETURN(machine.timer, CuptiTimer::Load(options.cupti_library));
  return machine;
}

Conditions Describe(const Machine& machine, const GpuMonitor& monitor, const Options& options,
                    const CublasControl* cublas) {
  Conditions conditions;
  int version = 0;
  machine.driver->cuDriverGetVersion(&version);
  conditions.device = machine.info.name;
  conditions.uuid = machine.info.uuid;
  conditions.driver = monitor.driver_version();
  conditions.cuda = absl::StrCat(version / 1000, ".", version % 1000 / 10);
  conditions.date = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone());
  conditions.commit = options.commit;
  conditions.digest = options.digest;
  conditions.cupti = machine.timer->version();
  conditions.cublas = cublas != nullptr ? cublas->version() : "not used";
  conditions.sm_count = machine.info.sm_count;
  conditions.max_sm_mhz = monitor.max_sm_mhz();
  conditions.max_memory_mhz = monitor.max_memory_mhz();
  conditions.flush_bytes = options.flush_bytes;
  conditions.warmups = options.warmups;
  conditions.samples = options.samples;
  return conditions;
}

absl::Status Write(const std::string& path, const std::string& text) {
  if (path.empty()) {
    std::cout << text;
    return absl::OkStatus();
  }
  std::ofstream file(path, std::ios::trunc);
  file << text;
  file.close();
  return file ? absl::OkStatus() : absl::UnknownError(absl::StrCat("cannot write ", path));
}

bool Complete(const Runner& runner) {
  return runner.missing().empty() &&
         std::all_of(runner.rows().begin(), runner.rows().end(), [](const Row& row) {
           return row.error.empty() && (row.check.elements == 0 || row.check.passed);
         });
}

int Measure(const Options& options, const std::vector<Problem>& problems, absl::Time deadline) {
  absl::StatusOr<Machine> machine = OpenMachine(options);
  if (!machine.ok()) return Fail(kExitUnavailable, machine.status());
  const cuda::ScopedContext scope(*machine->context);
  if (!scope.status().ok()) return Fail(kExitUnavailable, scope.status());
  GpuMonitor monitor(machine->info.uuid);
  std::unique_ptr<CublasControl> cublas;
  if (options.cublas) {
    auto loaded = CublasControl::Load(*machine->driver, options.cublas_library);
    if (!loaded.ok())
      return Fail(kExitUnavailable, Annotate(loaded.status(), "--no_cublas goes without"));
    cublas = *std::move(loaded);
  }
  const RunnerParts parts{machine->driver,
                          &*machine->context,
                          machine->device.get(),
                          machine->timer.get(),
                          &monitor,
                          cublas.get(),
                          deadline};
  const auto runner = Runner::Create(parts, options, problems);
  if (!runner.ok()) return Fail(kExitIncomplete, runner.status());
  const Conditions conditions = Describe(*machine, monitor, options, cublas.get());
  const absl::Status ran = (*runner)->Run();
  const absl::Status written =
      Write(options.output, RenderReport(conditions, (*runner)->rows(), (*runner)->missing()));
  if (!written.ok()) return Fail(kExitCannotCreate, written);
  if (!ran.ok()) return Fail(kExitIncomplete, ran);
  return Complete(**runner) ? 0 : kExitIncomplete;
}

int Main(int argc, char** argv) {
  const absl::Time start = absl::Now();
  const absl::StatusOr<Options> options =
      ParseOptions(std::vector<std::string>(argv + 1, argv + argc));
  if (!options.ok()) return Fail(kExitUsage, options.status());
  if (options->help) {
    std::cout << HelpText();
    return 0;
  }
  // A missing suite is told before a missing GPU: it can be mended here.
  const absl::StatusOr<std::vector<Problem>> problems = ReadProblems(*options);
  if (!problems.ok()) return Fail(kExitCannotRead, problems.status());
  if (options->manifest) {
    const auto manifest = RenderManifest(*problems);
    if (!manifest.ok()) return Fail(kExitUsage, manifest.status());
    const absl::Status written = Write(options->output, *manifest);
    return written.ok() ? 0 : Fail(kExitCannotCreate, written);
  }
  return Measure(*options, *problems, start + options->time_limit);
}

}  // namespace
}  // namespace gemmd::bench

int main(int argc, char** argv) { return gemmd::bench::Main(argc, argv); }
