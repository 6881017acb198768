// What    One thread for admin calls that read disks or compile: gRPC's threads never wait for
//         either.
// Threads Add from any thread. Tasks run one after the other; the destructor finishes what was
//         added.
#ifndef GEMMD_SERVER_ADMIN_WORKER_H_
#define GEMMD_SERVER_ADMIN_WORKER_H_

#include <deque>
#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "kernels/base/mutex.h"

namespace gemmd {

class AdminWorker {
 public:
  // `calls`: what waits here, in the plural, for whoever is refused.
  AdminWorker(size_t max_waiting, const char* calls);
  ~AdminWorker();
  AdminWorker(const AdminWorker&) = delete;
  AdminWorker& operator=(const AdminWorker&) = delete;

  // ResourceExhausted QUEUE_FULL; `task` is then not kept. `waits`, if any, hears how many tasks go before this one,
  // when there are some: before this one begins, and not for long.
  absl::Status Add(std::function<void()> task, const std::function<void(size_t ahead)>& waits = nullptr);
  // Called by a task that is done but for its answer: who comes once that has arrived does not wait for it.
  void OnlyAnswers();

 private:
  void Work();

  const size_t max_waiting_;
  const char* const calls_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  bool runs_ ABSL_GUARDED_BY(mutex_) = false;  // a task that others wait for
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace gemmd

#endif  // GEMMD_SERVER_ADMIN_WORKER_H_
