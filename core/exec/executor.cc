#include "core/exec/executor.h"

#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

absl::Status SessionEnded() {
  return Error(absl::StatusCode::kAborted, "SESSION_ENDED", "the session ended");
}

// OK, or why the job must not start.
absl::Status MayStart(const Job& job) {
  if (job.cancelled && job.cancelled()) {
    return Error(absl::StatusCode::kCancelled, "CANCELLED", "the client gave up while it waited");
  }
  if (absl::Now() >= job.deadline) {
    return Error(absl::StatusCode::kDeadlineExceeded, "DEADLINE",
                 "the deadline passed while the request waited");
  }
  return absl::OkStatus();
}

}  // namespace

ThreadTracker::Lease::Lease(std::shared_ptr<ThreadTracker> tracker) : tracker_(std::move(tracker)) {
  MutexLock lock(tracker_->mutex_);
  ++tracker_->alive_;
}

ThreadTracker::Lease::~Lease() {
  MutexLock lock(tracker_->mutex_);
  if (--tracker_->alive_ == 0) tracker_->changed_.NotifyAll();
}

void ThreadTracker::WaitUntilNone() {
  MutexLock lock(mutex_);
  changed_.Wait(mutex_, [this] { return alive_ == 0; });
}

struct Executor::Queue {
  struct Item {
    std::shared_ptr<Job> job;
    absl::Time submitted;
  };

  Queue(Device& device, std::shared_ptr<std::atomic<int>> queued, int limit)
      : device(device), queued(std::move(queued)), limit(limit) {}

  // The next item, or none when stopped.
  bool Take(Item& item) {
    MutexLock lock(mutex);
    changed.Wait(mutex, [this] { return stopped || !items.empty(); });
    if (stopped) return false;
    item = std::move(items.front());
    items.pop_front();
    return true;
  }

  // The slot is given up before the client hears of it, so that an answered request never counts.
  void Fail(Item& item, const absl::Status& status) {
    queued->fetch_sub(1);
    item.job->Fail(status, absl::Now() - item.submitted);
  }

  void Run(Item& item, absl::StatusOr<std::unique_ptr<Stream>>& stream) {
    if (absl::Status status = MayStart(*item.job); !status.ok()) return Fail(item, status);
    if (!stream.ok()) stream = device.CreateStream();
    if (!stream.ok()) return Fail(item, stream.status());
    const std::function<void()> report = item.job->Run(**stream, absl::Now() - item.submitted);
    queued->fetch_sub(1);
    report();
  }

  Device& device;
  const std::shared_ptr<std::atomic<int>> queued;
  const int limit;
  Mutex mutex;
  CondVar changed;
  std::deque<Item> items ABSL_GUARDED_BY(mutex);
  bool started ABSL_GUARDED_BY(mutex) = false;
  bool stopped ABSL_GUARDED_BY(mutex) = false;
};

Executor::Executor(Device& device, std::shared_ptr<std::atomic<int>> queued, int limit,
                   std::shared_ptr<ThreadTracker> tracker)
    : queue_(std::make_shared<Queue>(device, std::move(queued), limit)),
      tracker_(std::move(tracker)) {}

Executor::~Executor() { Stop(); }

absl::Status Executor::Submit(std::shared_ptr<Job> job) {
  Queue& queue = *queue_;
  MutexLock lock(queue.mutex);
  if (queue.stopped) return SessionEnded();
  if (queue.queued->fetch_add(1) >= queue.limit) {
    queue.queued->fetch_sub(1);
    return Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                 absl::StrCat("the session has ", queue.limit, " requests waiting or running"));
  }
  if (!queue.started) {
    if (absl::Status status = StartThread(); !status.ok()) {
      queue.queued->fetch_sub(1);
      return status;
    }
    queue.started = true;
  }
  queue.items.push_back({std::move(job), absl::Now()});
  queue.changed.NotifyOne();
  return absl::OkStatus();
}

// The thread is not joined: ending a session must not wait for its running request.
absl::Status Executor::StartThread() {
  try {
    std::thread([queue = queue_, lease = tracker_->NewLease()]() mutable {
      Work(std::move(queue));
      lease.reset();
    }).detach();
    return absl::OkStatus();
  } catch (const std::system_error& error) {
    return Error(absl::StatusCode::kResourceExhausted, "QUOTA",
                 absl::StrCat("no thread for the session's requests: ", error.what()));
  }
}

void Executor::Work(std::shared_ptr<Queue> queue) {
  absl::StatusOr<std::unique_ptr<Stream>> stream = absl::UnavailableError("not created yet");
  Queue::Item item;
  while (queue->Take(item)) {
    queue->Run(item, stream);
    item.job.reset();
  }
}

void Executor::Stop() {
  std::deque<Queue::Item> waiting;
  {
    MutexLock lock(queue_->mutex);
    queue_->stopped = true;
    waiting.swap(queue_->items);
    queue_->changed.NotifyAll();
  }
  for (Queue::Item& item : waiting) queue_->Fail(item, SessionEnded());
}

}  // namespace gemmd
