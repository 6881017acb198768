#include "core/exec/thread_pool.h"

#include <algorithm>
#include <exception>

namespace gemmd {

// One call of ParallelFor. Indices are handed out under the mutex: a body takes milliseconds.
struct ThreadPool::Loop {
  Loop(int64_t count, const std::function<void(int64_t)>& body) : count(count), body(body) {}

  // Runs indices until none is left.
  void Run() {
    for (int64_t index = Take(); index >= 0; index = Take()) {
      std::exception_ptr thrown;
      try {
        body(index);
      } catch (...) {
        thrown = std::current_exception();
      }
      Finish(thrown);
    }
  }

  bool exhausted() {
    MutexLock lock(mutex);
    return next >= count;
  }

  void WaitUntilDone() {
    MutexLock lock(mutex);
    done.Wait(mutex, [this] { return next >= count && running == 0; });
    if (failure) std::rethrow_exception(failure);
  }

 private:
  int64_t Take() {
    MutexLock lock(mutex);
    if (next >= count) return -1;
    ++running;
    return next++;
  }

  void Finish(std::exception_ptr thrown) {
    MutexLock lock(mutex);
    if (thrown && !failure) failure = thrown;
    if (thrown) next = count;
    if (--running == 0 && next >= count) done.NotifyAll();
  }

  const int64_t count;
  const std::function<void(int64_t)>& body;  // lives until WaitUntilDone returns
  Mutex mutex;
  CondVar done;
  int64_t next = 0;
  int64_t running = 0;
  std::exception_ptr failure;
};

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { Work(); });
}

ThreadPool::~ThreadPool() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::ParallelFor(int64_t count, const std::function<void(int64_t)>& body) {
  if (count <= 0) return;
  auto loop = std::make_shared<Loop>(count, body);
  const bool shared = count > 1 && !workers_.empty();
  if (shared) {
    MutexLock lock(mutex_);
    loops_.push_back(loop);
    changed_.NotifyAll();
  }
  loop->Run();
  if (shared) {
    MutexLock lock(mutex_);
    loops_.erase(std::remove(loops_.begin(), loops_.end(), loop), loops_.end());
  }
  loop->WaitUntilDone();
}

void ThreadPool::Work() {
  while (true) {
    std::shared_ptr<Loop> loop;
    {
      MutexLock lock(mutex_);
      changed_.Wait(mutex_, [this] { return stopping_ || !loops_.empty(); });
      if (stopping_) return;
      // Turns: several sessions' loops advance together.
      loop = loops_.front();
      loops_.pop_front();
      if (!loop->exhausted()) loops_.push_back(loop);
    }
    loop->Run();
  }
}

}  // namespace gemmd
