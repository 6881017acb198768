#include "kernels/cuda/context.h"

#include <utility>

#include "kernels/base/status.h"
#include "kernels/cuda/handles.h"

namespace gemmd::cuda {

absl::StatusOr<PrimaryContext> PrimaryContext::Retain(const DriverTable& driver, int ordinal) {
  CUdevice device = 0;
  GEMMD_CUDA(driver, cuDeviceGet, &device, ordinal);
  CUcontext context = nullptr;
  GEMMD_CUDA(driver, cuDevicePrimaryCtxRetain, &context, device);
  return PrimaryContext(driver, device, context);
}

PrimaryContext::PrimaryContext(PrimaryContext&& other) noexcept
    : driver_(other.driver_),
      device_(other.device_),
      context_(std::exchange(other.context_, nullptr)) {}

PrimaryContext& PrimaryContext::operator=(PrimaryContext&& other) noexcept {
  if (this != &other) {
    Reset();
    driver_ = other.driver_;
    device_ = other.device_;
    context_ = std::exchange(other.context_, nullptr);
  }
  return *this;
}

PrimaryContext::~PrimaryContext() { Reset(); }

void PrimaryContext::Reset() {
  if (std::exchange(context_, nullptr) == nullptr) return;
  ReportTeardown(*driver_, driver_->cuDevicePrimaryCtxRelease(device_),
                 "cuDevicePrimaryCtxRelease");
}

ScopedContext::ScopedContext(const DriverTable& driver, CUcontext context) : driver_(driver) {
  if (context == nullptr) return;
  status_ = ToStatus(driver, driver.cuCtxPushCurrent(context), "cuCtxPushCurrent");
  pushed_ = status_.ok();
}

ScopedContext::~ScopedContext() {
  if (!pushed_) return;
  CUcontext popped = nullptr;
  ReportTeardown(driver_, driver_.cuCtxPopCurrent(&popped), "cuCtxPopCurrent");
}

absl::StatusOr<CUcontext> CurrentContext(const DriverTable& driver) {
  CUcontext context = nullptr;
  GEMMD_CUDA(driver, cuCtxGetCurrent, &context);
  if (context == nullptr) {
    return Error(absl::StatusCode::kFailedPrecondition, "NO_CONTEXT",
                 "no CUDA context is current on this thread");
  }
  return context;
}

}  // namespace gemmd::cuda
