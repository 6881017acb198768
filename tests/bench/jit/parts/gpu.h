// What    The GPU that kernels are loaded into: the first usable one, with its context.
// Errors  Unavailable or NotFound: no driver, no usable GPU.
// Threads One thread.
#ifndef GEMMD_TESTS_BENCH_JIT_PARTS_GPU_H_
#define GEMMD_TESTS_BENCH_JIT_PARTS_GPU_H_

#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/device_info.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/library.h"
#include "kernels/jit/compiler.h"

namespace gemmd::jit_bench {

struct Gpu {
  const cuda::DriverTable* driver;
  cuda::DeviceInfo info;
  cuda::PrimaryContext context;
  double start_milliseconds;  // loading the driver, listing GPUs, making the context

  std::string cuda_version() const;  // what the driver offers
};

// To be called before anything else of this process uses the driver: it is timed.
absl::StatusOr<Gpu> OpenGpu();

// Kernels in the GPU's context, until the object ends.
class Modules {
 public:
  explicit Modules(const Gpu& gpu) : gpu_(gpu), scope_(gpu.context) {}
  absl::Status Load(const jit::CompiledKernel& kernel);

 private:
  const Gpu& gpu_;
  const cuda::ScopedContext scope_;
  std::vector<cuda::LoadedLibrary> libraries_;
};

}  // namespace gemmd::jit_bench

#endif  // GEMMD_TESTS_BENCH_JIT_PARTS_GPU_H_
