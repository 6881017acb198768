#include "tests/bench/jit/parts/gpu.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "tests/bench/jit/parts/setup.h"

namespace gemmd::jit_bench {

std::string Gpu::cuda_version() const {
  int version = 0;
  driver->cuDriverGetVersion(&version);
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

absl::StatusOr<Gpu> OpenGpu() {
  const Stopwatch watch;
  GEMMD_ASSIGN_OR_RETURN(const cuda::DriverTable* driver, cuda::LoadDriver());
  GEMMD_ASSIGN_OR_RETURN(const std::vector<cuda::DeviceInfo> gpus, cuda::ListGpus(*driver));
  for (const cuda::DeviceInfo& info : gpus) {
    if (!info.Usable().ok()) continue;
    GEMMD_ASSIGN_OR_RETURN(cuda::PrimaryContext context,
                           cuda::PrimaryContext::Retain(*driver, info.ordinal));
    return Gpu{driver, info, std::move(context), watch.milliseconds()};
  }
  return absl::NotFoundError("the driver lists no usable GPU");
}

absl::Status Modules::Load(const jit::CompiledKernel& kernel) {
  GEMMD_RETURN_IF_ERROR(scope_.status());
  GEMMD_ASSIGN_OR_RETURN(cuda::LoadedLibrary library,
                         cuda::LoadedLibrary::Load(*gpu_.driver, kernel.cubin));
  GEMMD_RETURN_IF_ERROR(library.GetKernel(kernel.lowered_name).status());
  libraries_.push_back(std::move(library));
  return absl::OkStatus();
}

}  // namespace gemmd::jit_bench
