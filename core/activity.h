// What    Counts what the node still has to answer, for draining.
// States  OPEN -> DRAINING: nothing new begins.
// Threads Thread-safe.
#ifndef GEMMD_CORE_ACTIVITY_H_
#define GEMMD_CORE_ACTIVITY_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/base/mutex.h"

namespace gemmd {

// Unavailable DRAINING.
absl::Status Draining();

class Activity {
 public:
  // Unavailable DRAINING, or OK and one End is due.
  absl::Status Begin();
  void End();

  void StartDraining();
  bool draining() const;
  bool idle() const;
  // Whether nothing is left before `deadline`.
  bool WaitUntilIdle(absl::Time deadline);

 private:
  mutable Mutex mutex_;
  CondVar changed_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  int active_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace gemmd

#endif  // GEMMD_CORE_ACTIVITY_H_
