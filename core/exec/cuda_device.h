// What    GPUs as devices, driven through kernels/gemm.h and kernels/cuda/.
// Errors  ListCudaDevices: Unavailable DRIVER_UNSUPPORTED when libcuda cannot be loaded or
//         initialised.
// Threads As Device.
#ifndef GEMMD_CORE_EXEC_CUDA_DEVICE_H_
#define GEMMD_CORE_EXEC_CUDA_DEVICE_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "core/exec/device.h"

namespace gemmd {

namespace jit {
class KernelCache;
}

struct CudaDeviceOptions {
  std::filesystem::path cache_directory = {};  // JIT cache; empty = memory only
  // Intermediate values of a mixture-of-experts request, per stream; larger requests run in chunks.
  uint64_t moe_workspace_bytes = uint64_t{512} << 20;
  std::shared_ptr<jit::KernelCache> cache = nullptr;  // in place of cache_directory
};

// Every GPU of this machine that gemmd can use, largest first. An empty list is a machine without
// GPUs.
absl::StatusOr<std::vector<std::unique_ptr<Device>>> CreateCudaDevices(
    const CudaDeviceOptions& options);

}  // namespace gemmd

#endif  // GEMMD_CORE_EXEC_CUDA_DEVICE_H_
