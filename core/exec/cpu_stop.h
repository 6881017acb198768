// What    Whether a call of the CPU device is to end early, asked by all threads that work on it.
// Threads Thread-safe; the call's function is asked by one thread at a time and, after an error,
//         never again.
#ifndef GEMMD_CORE_EXEC_CPU_STOP_H_
#define GEMMD_CORE_EXEC_CPU_STOP_H_

#include <atomic>

#include "absl/status/status.h"
#include "core/exec/device.h"
#include "kernels/base/mutex.h"

namespace gemmd {

class StopCheck {
 public:
  // `stop` may be null and outlives the check.
  explicit StopCheck(const StopFunction& stop) : stop_(stop) {}

  bool stopped() {
    if (!stop_) return false;
    if (stopped_) return true;
    MutexLock lock(mutex_);
    if (status_.ok()) status_ = stop_();
    stopped_ = !status_.ok();
    return stopped_;
  }

  // OK, or what ended the call. Asks nobody.
  absl::Status status() const {
    MutexLock lock(mutex_);
    return status_;
  }

 private:
  const StopFunction& stop_;
  std::atomic<bool> stopped_{false};
  mutable Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd

#endif  // GEMMD_CORE_EXEC_CPU_STOP_H_
