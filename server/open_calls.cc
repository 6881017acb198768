#include "server/open_calls.h"

namespace gemmd {

OpenCalls::Lease::Lease(OpenCalls* calls) : calls_(calls) {
  MutexLock lock(calls_->mutex_);
  ++calls_->leases_;
}

OpenCalls::Lease::~Lease() {
  MutexLock lock(calls_->mutex_);
  if (--calls_->leases_ == 0) calls_->changed_.NotifyAll();
}

void OpenCalls::Add(Stream* stream) {
  MutexLock lock(mutex_);
  streams_.insert(stream);
  if (finishing_) stream->End();
}

void OpenCalls::Remove(Stream* stream) {
  MutexLock lock(mutex_);
  streams_.erase(stream);
}

bool OpenCalls::FinishAll(absl::Time deadline) {
  MutexLock lock(mutex_);
  finishing_ = true;
  for (Stream* stream : streams_) stream->End();
  return changed_.WaitUntil(mutex_, deadline,
                            [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return leases_ == 0; });
}

}  // namespace gemmd
