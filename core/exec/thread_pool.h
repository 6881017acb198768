// What    A fixed set of threads that split loops; the caller works too.
// Threads ParallelFor may be called by many threads at once; their loops share the workers.
// Errors  An exception of `body` ends its loop early and is thrown again in the caller.
#ifndef GEMMD_CORE_EXEC_THREAD_POOL_H_
#define GEMMD_CORE_EXEC_THREAD_POOL_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/base/mutex.h"

namespace gemmd {

class ThreadPool {
 public:
  // `threads` counts the caller: 1 runs everything in the caller.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(i) once for every i in [0, count), in any order, and returns when all are done.
  void ParallelFor(int64_t count, const std::function<void(int64_t)>& body);

 private:
  struct Loop;
  void Work();

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::shared_ptr<Loop>> loops_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> workers_;
};

}  // namespace gemmd

#endif  // GEMMD_CORE_EXEC_THREAD_POOL_H_
