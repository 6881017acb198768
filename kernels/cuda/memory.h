// What    Plain device memory (cuMemAlloc; legacy IPC capable) and page-locked host memory, one
//         owner each.
// Units   Bytes.
// Errors  ResourceExhausted GPU_OOM; InvalidArgument REGION_OUT_OF_BOUNDS for 0 bytes; else as
//         ToStatus.
// Threads One thread at a time; the context must be current for Create, destruction makes it
//         current.
#ifndef GEMMD_KERNELS_CUDA_MEMORY_H_
#define GEMMD_KERNELS_CUDA_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/cuda/driver.h"

namespace gemmd::cuda {

class DeviceBuffer {
 public:
  static absl::StatusOr<DeviceBuffer> Create(const DriverTable& driver, uint64_t bytes);
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer() { Reset(); }

  uintptr_t address() const { return address_; }
  uint64_t size() const { return size_; }

 private:
  DeviceBuffer(const DriverTable& driver, CUcontext context, CUdeviceptr address, uint64_t size)
      : driver_(&driver), context_(context), address_(address), size_(size) {}
  void Reset();

  const DriverTable* driver_;
  CUcontext context_;
  CUdeviceptr address_;
  uint64_t size_;
};

// Page-locked, mapped into the device's address space (same address under unified addressing).
class PinnedBuffer {
 public:
  static absl::StatusOr<PinnedBuffer> Create(const DriverTable& driver, uint64_t bytes);
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  ~PinnedBuffer() { Reset(); }

  absl::Span<std::byte> bytes() const { return {static_cast<std::byte*>(data_), size_}; }

 private:
  PinnedBuffer(const DriverTable& driver, CUcontext context, void* data, size_t size)
      : driver_(&driver), context_(context), data_(data), size_(size) {}
  void Reset();

  const DriverTable* driver_;
  CUcontext context_;
  void* data_;
  size_t size_;
};

}  // namespace gemmd::cuda

#endif  // GEMMD_KERNELS_CUDA_MEMORY_H_
