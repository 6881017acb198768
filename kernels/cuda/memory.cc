#include "kernels/cuda/memory.h"

#include <utility>

#include "kernels/base/status.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/handles.h"

namespace gemmd::cuda {
namespace {

absl::Status CheckNotEmpty(uint64_t bytes) {
  if (bytes != 0) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, "REGION_OUT_OF_BOUNDS",
               "cannot allocate 0 bytes");
}

}  // namespace

absl::StatusOr<DeviceBuffer> DeviceBuffer::Create(const DriverTable& driver, uint64_t bytes) {
  GEMMD_RETURN_IF_ERROR(CheckNotEmpty(bytes));
  GEMMD_ASSIGN_OR_RETURN(CUcontext context, CurrentContext(driver));
  CUdeviceptr address = 0;
  GEMMD_CUDA(driver, cuMemAlloc, &address, bytes);
  return DeviceBuffer(driver, context, address, bytes);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : driver_(other.driver_),
      context_(other.context_),
      address_(std::exchange(other.address_, 0)),
      size_(std::exchange(other.size_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  if (this != &other) {
    Reset();
    driver_ = other.driver_;
    context_ = other.context_;
    address_ = std::exchange(other.address_, 0);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void DeviceBuffer::Reset() {
  const CUdeviceptr address = std::exchange(address_, 0);
  if (address == 0) return;
  const ScopedContext scope(*driver_, context_);
  ReportTeardown(*driver_, driver_->cuMemFree(address), "cuMemFree");
}

absl::StatusOr<PinnedBuffer> PinnedBuffer::Create(const DriverTable& driver, uint64_t bytes) {
  GEMMD_RETURN_IF_ERROR(CheckNotEmpty(bytes));
  GEMMD_ASSIGN_OR_RETURN(CUcontext context, CurrentContext(driver));
  void* data = nullptr;
  GEMMD_CUDA(driver, cuMemHostAlloc, &data, bytes,
             CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  return PinnedBuffer(driver, context, data, bytes);
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : driver_(other.driver_),
      context_(other.context_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  if (this != &other) {
    Reset();
    driver_ = other.driver_;
    context_ = other.context_;
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void PinnedBuffer::Reset() {
  void* data = std::exchange(data_, nullptr);
  if (data == nullptr) return;
  const ScopedContext scope(*driver_, context_);
  ReportTeardown(*driver_, driver_->cuMemFreeHost(data), "cuMemFreeHost");
}

}  // namespace gemmd::cuda
