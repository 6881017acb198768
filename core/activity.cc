#include "core/activity.h"

#include "kernels/base/status.h"

namespace gemmd {

absl::Status Draining() {
  return Error(absl::StatusCode::kUnavailable, "DRAINING", "the daemon is shutting down");
}

absl::Status Activity::Begin() {
  MutexLock lock(mutex_);
  if (draining_) return Draining();
  ++active_;
  return absl::OkStatus();
}

void Activity::End() {
  MutexLock lock(mutex_);
  if (--active_ == 0) changed_.NotifyAll();
}

void Activity::StartDraining() {
  MutexLock lock(mutex_);
  draining_ = true;
}

bool Activity::draining() const {
  MutexLock lock(mutex_);
  return draining_;
}

bool Activity::idle() const {
  MutexLock lock(mutex_);
  return active_ == 0;
}

bool Activity::WaitUntilIdle(absl::Time deadline) {
  MutexLock lock(mutex_);
  return changed_.WaitUntil(mutex_, deadline, [this] { return active_ == 0; });
}

}  // namespace gemmd
