// What    The log level that an operator may change for a while.
// Threads Thread-safe.
#ifndef GEMMD_SERVER_LOG_LEVEL_CONTROL_H_
#define GEMMD_SERVER_LOG_LEVEL_CONTROL_H_

#include "absl/time/time.h"
#include "kernels/base/mutex.h"
#include "server/logging.h"

namespace gemmd {

class LogLevelControl {
 public:
  explicit LogLevelControl(LogLevel level) : lasting_(level) {}

  // For good with an infinite `revert_at`, else until Tick sees that time pass.
  void Set(LogLevel level, absl::Time revert_at) {
    MutexLock lock(mutex_);
    if (revert_at == absl::InfiniteFuture()) lasting_ = level;
    revert_at_ = revert_at;
    SetLogLevel(level);
  }

  void Tick(absl::Time now) {
    MutexLock lock(mutex_);
    if (now < revert_at_) return;
    revert_at_ = absl::InfiniteFuture();
    SetLogLevel(lasting_);
  }

 private:
  Mutex mutex_;
  LogLevel lasting_ ABSL_GUARDED_BY(mutex_);
  absl::Time revert_at_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
};

}  // namespace gemmd

#endif  // GEMMD_SERVER_LOG_LEVEL_CONTROL_H_
