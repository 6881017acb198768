// What    The primary context of one GPU, and the guard that makes a context current for a scope.
// Errors  As ToStatus.
// Threads PrimaryContext may be shared; a ScopedContext stays on the thread that made it.
#ifndef GEMMD_KERNELS_CUDA_CONTEXT_H_
#define GEMMD_KERNELS_CUDA_CONTEXT_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/driver.h"

namespace gemmd::cuda {

// Retains the primary context, which the CUDA runtime of the same process shares; releases it at
// the end.
class PrimaryContext {
 public:
  static absl::StatusOr<PrimaryContext> Retain(const DriverTable& driver, int ordinal);

  PrimaryContext(PrimaryContext&& other) noexcept;
  PrimaryContext& operator=(PrimaryContext&& other) noexcept;
  ~PrimaryContext();

  CUcontext get() const { return context_; }
  CUdevice device() const { return device_; }
  const DriverTable& driver() const { return *driver_; }

 private:
  PrimaryContext(const DriverTable& driver, CUdevice device, CUcontext context)
      : driver_(&driver), device_(device), context_(context) {}
  void Reset();

  const DriverTable* driver_;
  CUdevice device_;
  CUcontext context_;
};

// Pushes `context` on this thread; pops it at the end. A null context keeps the current one.
//   ScopedContext scope(context);
//   GEMMD_RETURN_IF_ERROR(scope.status());
class ScopedContext {
 public:
  explicit ScopedContext(const PrimaryContext& context)
      : ScopedContext(context.driver(), context.get()) {}
  ScopedContext(const DriverTable& driver, CUcontext context);
  ~ScopedContext();
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;

  const absl::Status& status() const { return status_; }

 private:
  const DriverTable& driver_;
  bool pushed_ = false;
  absl::Status status_;
};

// The context current on this thread. FailedPrecondition NO_CONTEXT when there is none.
absl::StatusOr<CUcontext> CurrentContext(const DriverTable& driver);

}  // namespace gemmd::cuda

#endif  // GEMMD_KERNELS_CUDA_CONTEXT_H_
