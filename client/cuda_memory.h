// What    CUDA memory on the client's side: naming it for the daemon, copying, and a small owned
//         buffer for programs without a CUDA framework of their own.
// Errors  Unavailable DRIVER_UNSUPPORTED: no libcuda here.  FailedPrecondition NOT_IPC_CAPABLE: the
//         memory has no IPC handle (cudaMallocAsync pools, PyTorch's expandable_segments, managed
//         memory). InvalidArgument REGION_OUT_OF_BOUNDS: the bytes leave the allocation.  NotFound
//         WRONG_DEVICE: no such GPU in this process.
// Threads Functions are thread-safe; a CudaBuffer is used by one thread at a time.
#ifndef GEMMD_CLIENT_CUDA_MEMORY_H_
#define GEMMD_CLIENT_CUDA_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "gemmd/v1/region.pb.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/memory.h"

namespace gemmd::client {

struct CudaExport {
  std::string device;  // "cuda:<GPU UUID>"
  v1::CudaIpcMemory memory;
};

// Names `bytes` bytes from `address` on.
absl::StatusOr<CudaExport> ExportCuda(uintptr_t address, uint64_t bytes);

// Copies between host memory and CUDA memory of this process, complete on return.
absl::Status CopyToCuda(uintptr_t address, absl::Span<const std::byte> from);
absl::Status CopyFromCuda(uintptr_t address, absl::Span<std::byte> to);

// cuMemAlloc memory on `device` ("cuda:<GPU UUID>").
class CudaBuffer {
 public:
  static absl::StatusOr<CudaBuffer> Create(const std::string& device, uint64_t bytes);
  uintptr_t address() const { return buffer_.address(); }
  uint64_t size() const { return size_; }

 private:
  CudaBuffer(cuda::PrimaryContext context, cuda::DeviceBuffer buffer, uint64_t size)
      : context_(std::move(context)), buffer_(std::move(buffer)), size_(size) {}
  cuda::PrimaryContext context_;
  cuda::DeviceBuffer buffer_;  // after context_: freed first
  uint64_t size_;
};

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_CUDA_MEMORY_H_
