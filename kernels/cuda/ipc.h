// What    Legacy CUDA IPC: the exporter's handle of one allocation, and the importer's mapping of
//         it.
// Units   Bytes. A handle names a whole allocation (cudaMalloc block); `offset` finds the pointer
//         in it.
// Errors  InvalidArgument BAD_HANDLE_SIZE, REGION_OUT_OF_BOUNDS (allocation smaller than said);
//         FailedPrecondition IPC_OPEN_FAILED, NOT_IPC_CAPABLE; else as ToStatus.
// Threads One thread at a time, with the GPU's context current for Open and ExportIpc. Destruction
//         makes the context of Open current by itself; it may block while the exporter dies: use a
//         reaper thread.
// Source  CUDA driver API, cuIpc*; https://pytorch.org/docs/stable/notes/cuda.html on allocator
//         settings.
#ifndef GEMMD_KERNELS_CUDA_IPC_H_
#define GEMMD_KERNELS_CUDA_IPC_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda/driver.h"

namespace gemmd::cuda {

inline constexpr size_t kIpcHandleBytes = CU_IPC_HANDLE_SIZE;  // 64

// Another process's allocation, mapped while the object lives.
class IpcMapping {
 public:
  // `allocation_size` is what the exporter says the allocation has; 0 = take the driver's word. Waits up to a
  // second for mappings of the same device memory that are being closed.
  static absl::StatusOr<IpcMapping> Open(const DriverTable& driver,
                                         absl::Span<const std::byte> handle,
                                         uint64_t allocation_size);
  IpcMapping(IpcMapping&& other) noexcept;
  IpcMapping& operator=(IpcMapping&& other) noexcept;
  ~IpcMapping() { Reset(); }

  uintptr_t address() const { return address_; }  // base of the allocation
  uint64_t size() const { return size_; }         // never more than the driver reports

 private:
  IpcMapping(const DriverTable& driver, CUcontext context, CUdeviceptr address)
      : driver_(&driver), context_(context), address_(address) {}
  absl::Status CheckSize(uint64_t allocation_size);
  void Reset();

  const DriverTable* driver_;
  CUcontext context_;
  CUdeviceptr address_;
  uint64_t size_ = 0;
};

struct IpcExport {
  std::array<std::byte, kIpcHandleBytes> handle;
  uintptr_t base = 0;            // of the allocation, in the exporting process
  uint64_t allocation_size = 0;  // of the allocation
  uint64_t offset = 0;           // pointer - base
  uint64_t buffer_id =
      0;             // CU_POINTER_ATTRIBUTE_BUFFER_ID: tells a reused address from the old one
  int ordinal = -1;  // of the GPU that holds the memory
};

// Names the allocation around `pointer` for other processes.
absl::StatusOr<IpcExport> ExportIpc(const DriverTable& driver, uintptr_t pointer);

}  // namespace gemmd::cuda

#endif  // GEMMD_KERNELS_CUDA_IPC_H_
