// What    Jobs for one thread, in order. Jobs may be added from anywhere, also after Close; then they
//         are dropped.
// Threads Every method is thread-safe; Run returns after Close.
#ifndef GEMMD_KERNELS_JOB_QUEUE_H_
#define GEMMD_KERNELS_JOB_QUEUE_H_

#include <deque>
#include <functional>
#include <utility>

#include "kernels/base/mutex.h"

namespace gemmd {

class JobQueue {
 public:
  void Add(std::function<void()> job) {
    MutexLock lock(mutex_);
    if (!closed_) jobs_.push_back(std::move(job));
    changed_.NotifyAll();
  }

  // Does jobs until Close; the one that is being done then is finished.
  void Run() {
    while (true) {
      std::function<void()> job;
      {
        MutexLock lock(mutex_);
        changed_.Wait(
            mutex_, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return closed_ || !jobs_.empty(); });
        if (closed_) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      job();
    }
  }

  void Close() {
    std::deque<std::function<void()>> dropped;
    MutexLock lock(mutex_);
    closed_ = true;
    dropped.swap(jobs_);
    changed_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> jobs_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_JOB_QUEUE_H_
