// What    A cubin loaded into the driver, and its kernels by (lowered) name.
// Errors  FailedPrecondition DRIVER_UNSUPPORTED: the cubin is of another architecture or too new
//         for the driver. NotFound NO_KERNEL: no kernel of that name. Else as ToStatus.
// Threads Any, after Load. A kernel is valid while its library lives.
#ifndef GEMMD_KERNELS_CUDA_LIBRARY_H_
#define GEMMD_KERNELS_CUDA_LIBRARY_H_

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/handles.h"

namespace gemmd::cuda {

// What one kernel uses on one GPU.
struct KernelResources {
  int registers = 0;            // per thread
  int local_bytes = 0;          // per thread: spills and stack
  int static_shared_bytes = 0;  // per block
  int max_threads = 0;          // per block
};

class LoadedLibrary {
 public:
  // The driver copies `cubin`.
  static absl::StatusOr<LoadedLibrary> Load(const DriverTable& driver,
                                            absl::Span<const std::byte> cubin);

  // Loads the code into the current context, so that no launch has to.
  absl::StatusOr<CUkernel> GetKernel(const std::string& lowered_name) const;

 private:
  explicit LoadedLibrary(Handle<CUlibrary, &DriverTable::cuLibraryUnload> handle)
      : handle_(std::move(handle)) {}

  Handle<CUlibrary, &DriverTable::cuLibraryUnload> handle_;
};

absl::StatusOr<KernelResources> GetKernelResources(const DriverTable& driver, CUkernel kernel,
                                                   CUdevice device);

// Allows launches of `kernel` with up to `bytes` of dynamic shared memory; needed above 48 KiB.
absl::Status SetMaxDynamicShared(const DriverTable& driver, CUkernel kernel, CUdevice device,
                                 int bytes);

// Blocks of `threads` threads that fit one multiprocessor. A context must be current.
absl::StatusOr<int> MaxBlocksPerMultiprocessor(const DriverTable& driver, CUkernel kernel,
                                               int threads, int dynamic_shared_bytes);

}  // namespace gemmd::cuda

#endif  // GEMMD_KERNELS_CUDA_LIBRARY_H_
