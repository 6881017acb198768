// What    One session's requests on one device: a bounded queue and the thread that runs them in
//         order.
// States  OPEN -> STOPPED: queued jobs fail, the running one finishes, the thread ends by itself.
// Errors  ResourceExhausted QUEUE_FULL; Aborted SESSION_ENDED after Stop; DeadlineExceeded or
//         Cancelled for a job whose time or client was gone before it started.
// Threads Thread-safe. A job gets exactly one of Run and Fail, outside of the queue's lock.
#ifndef GEMMD_CORE_EXEC_EXECUTOR_H_
#define GEMMD_CORE_EXEC_EXECUTOR_H_

#include <atomic>
#include <deque>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/exec/device.h"
#include "kernels/base/mutex.h"

namespace gemmd {

// One request. Neither Run nor Fail throws.
class Job {
 public:
  virtual ~Job() = default;
  // Blocks until the device is done and gives up what the job holds. The result reports to the
  // client; it is called once the job no longer counts as queued.
  virtual std::function<void()> Run(Stream& stream, absl::Duration queued) = 0;
  // Gives up what the job holds and reports `status`.
  virtual void Fail(const absl::Status& status, absl::Duration queued) = 0;

  absl::Time deadline = absl::InfiniteFuture();
  std::function<bool()> cancelled;  // may be null
};

// Waits for threads that nobody joins: each holds a Lease while it runs.
class ThreadTracker : public std::enable_shared_from_this<ThreadTracker> {
 public:
  class Lease {
   public:
    explicit Lease(std::shared_ptr<ThreadTracker> tracker);
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

   private:
    std::shared_ptr<ThreadTracker> tracker_;
  };
  std::shared_ptr<Lease> NewLease() { return std::make_shared<Lease>(shared_from_this()); }
  void WaitUntilNone();

 private:
  Mutex mutex_;
  CondVar changed_;
  int alive_ ABSL_GUARDED_BY(mutex_) = 0;
};

class Executor {
 public:
  // `queued` counts the waiting and running jobs of a whole session; at most `limit`. `device`
  // outlives the tracker's threads.
  Executor(Device& device, std::shared_ptr<std::atomic<int>> queued, int limit,
           std::shared_ptr<ThreadTracker> tracker);
  ~Executor();  // as Stop
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // On an error the job is untouched: the caller still owns its completion.
  absl::Status Submit(std::shared_ptr<Job> job);

  // Fails what waits with SESSION_ENDED. Returns without waiting for the running job.
  void Stop();

 private:
  struct Queue;
  absl::Status StartThread();
  static void Work(std::shared_ptr<Queue> queue);

  const std::shared_ptr<Queue> queue_;
  const std::shared_ptr<ThreadTracker> tracker_;
};

}  // namespace gemmd

#endif  // GEMMD_CORE_EXEC_EXECUTOR_H_
