// What    GPUs as devices, driven through kernels/gemm.h and kernels/cuda/.
// Errors  ListCudaDevices: Unavailable DRIVER_UNSUPPORTED when libcuda cannot be loaded or
//         initialised.
// Threads As Device.
#ifndef GEMMD_CORE_EXEC_CUDA_DEVICE_H_
#define GEMMD_CORE_EXEC_CUDA_DEVICE_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/exec/device.h"

namespace gemmd {

namespace jit {
class KernelCache;
}

class TuningStore;  // kernels/tuning.h

// What happened to a kernel while nobody waited for it.
struct KernelNotice {
  enum class Kind : uint8_t {
    kReady,        // a specialised kernel serves
    kFailed,       // a specialised kernel is not to be had; the generic one goes on serving
    kQuarantined,  // a kernel failed its self-test; no process runs it again under this driver
  };
  Kind kind = Kind::kReady;
  std::string device;  // id
  std::string kernel;
  absl::Status status;  // why; a compiler's message ends with its log
  // Ready: what batch-invariant requests of a layer on the device may name from now on.
  std::vector<KernelNumerics> armed;
};

struct CudaDeviceOptions {
  std::filesystem::path cache_directory = {};  // JIT cache; empty = memory only
  // Intermediate values of a mixture-of-experts request, or quantized x of a dense one, per stream; larger
  // requests run in chunks.
  uint64_t moe_workspace_bytes = uint64_t{512} << 20;
  std::shared_ptr<jit::KernelCache> cache = nullptr;  // in place of cache_directory
  // True: LoadLayer returns with the layer's generic kernel, and its specialised kernels follow. False:
  // it returns when every kernel is there or has failed.
  bool serve_first = false;
  // Have the generic kernels of common formats compiled before the first layer comes.
  bool compile_common = false;
  // What is known of GPUs' kernels, and where Device::Tune puts more; may be null.
  std::shared_ptr<TuningStore> tuning = nullptr;
  // Kernels compute a small problem exactly before they serve. Only a fake driver's cannot.
  bool self_test = true;
  // Called from any thread; must not block. May be null.
  std::function<void(const KernelNotice&)> on_kernel = nullptr;
};

// Every GPU of this machine that gemmd can use, largest first. An empty list is a machine without
// GPUs.
absl::StatusOr<std::vector<std::unique_ptr<Device>>> CreateCudaDevices(
    const CudaDeviceOptions& options);

}  // namespace gemmd

#endif  // GEMMD_CORE_EXEC_CUDA_DEVICE_H_
