// What    Device memory made of VMM allocations: ours, exportable as a file descriptor; and another
//         process's, mapped from its file descriptor.
// Units   Bytes. size() is the request rounded up to the allocation granularity (2 MiB on today's
//         GPUs).
// Errors  ResourceExhausted GPU_OOM; InvalidArgument REGION_OUT_OF_BOUNDS: 0 bytes, or a size that
//         the imported allocation does not have; FailedPrecondition IPC_OPEN_FAILED: the driver
//         refuses the descriptor; else as ToStatus. Whatever was acquired before a failure is given
//         back.
// Threads One thread at a time; destruction may wait for the device.
#ifndef GEMMD_KERNELS_CUDA_VMM_H_
#define GEMMD_KERNELS_CUDA_VMM_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/handles.h"

namespace gemmd::cuda {

using VmmHandle = Handle<CUmemGenericAllocationHandle, &DriverTable::cuMemRelease>;

// Reserved address range with one allocation mapped into it.
class VmmRange {
 public:
  static absl::StatusOr<VmmRange> Map(const DriverTable& driver, int ordinal,
                                      CUmemGenericAllocationHandle handle, uint64_t size,
                                      bool read_only);
  VmmRange(VmmRange&& other) noexcept;
  VmmRange& operator=(VmmRange&& other) noexcept;
  ~VmmRange() { Reset(); }

  uintptr_t address() const { return address_; }
  uint64_t size() const { return size_; }

 private:
  VmmRange(const DriverTable& driver, CUdeviceptr address, uint64_t size)
      : driver_(&driver), address_(address), size_(size) {}
  void Reset();

  const DriverTable* driver_;
  CUdeviceptr address_;
  uint64_t size_;
  bool mapped_ = false;
};

// Our own memory, readable and writable by the device `ordinal`. Its lifetime is the object's, and
// that of every mapping made from an exported descriptor.
class VmmAllocation {
 public:
  static absl::StatusOr<VmmAllocation> Create(const DriverTable& driver, int ordinal,
                                              uint64_t bytes);

  uintptr_t address() const { return range_.address(); }
  uint64_t size() const { return range_.size(); }
  // A new descriptor with close-on-exec set; it keeps the memory alive by itself.
  absl::StatusOr<UniqueFd> ExportFd() const;

 private:
  VmmAllocation(VmmHandle handle, VmmRange range)
      : handle_(std::move(handle)), range_(std::move(range)) {}

  VmmHandle handle_;
  VmmRange range_;  // after handle_: unmapped first
};

// Memory of the exporter of `fd`, which stays the caller's. `bytes` is what the exporter asked for
// or its rounded size; both give the same mapping.
class VmmMapping {
 public:
  static absl::StatusOr<VmmMapping> Import(const DriverTable& driver, int ordinal, int fd,
                                           uint64_t bytes, bool read_only);

  uintptr_t address() const { return range_.address(); }
  uint64_t size() const { return range_.size(); }

 private:
  explicit VmmMapping(VmmRange range) : range_(std::move(range)) {}

  VmmRange range_;
};

// `bytes` rounded up to what cuMemCreate and cuMemMap accept on this device.
absl::StatusOr<uint64_t> VmmRoundedSize(const DriverTable& driver, int ordinal, uint64_t bytes);

}  // namespace gemmd::cuda

#endif  // GEMMD_KERNELS_CUDA_VMM_H_
