// What    std::mutex and std::condition_variable behind thread-safety annotations.
// Why     Debian's abseil is built without sanitizer hooks: TSan does not see what absl::Mutex
//         orders, and reports every guarded field. It does understand the pthread mutex under
//         std::mutex.
#ifndef GEMMD_KERNELS_BASE_MUTEX_H_
#define GEMMD_KERNELS_BASE_MUTEX_H_

#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace gemmd {

class ABSL_LOCKABLE Mutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

  // BasicLockable, for std::condition_variable_any.
  void lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  // Waits until `done()`; the caller holds `mutex`.
  template <typename Predicate>
  void Wait(Mutex& mutex, Predicate done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    condition_.wait(mutex, done);
  }
  // As Wait, at most until `deadline`. Returns done().
  template <typename Predicate>
  bool WaitUntil(Mutex& mutex, absl::Time deadline, Predicate done)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (deadline == absl::InfiniteFuture()) {
      Wait(mutex, done);
      return true;
    }
    return condition_.wait_until(mutex, absl::ToChronoTime(deadline), done);
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable_any condition_;
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_BASE_MUTEX_H_
