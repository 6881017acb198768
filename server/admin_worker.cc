#include "server/admin_worker.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace gemmd {

AdminWorker::AdminWorker(size_t max_waiting, const char* calls)
    : max_waiting_(max_waiting), calls_(calls), thread_([this] { Work(); }) {}

AdminWorker::~AdminWorker() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

absl::Status AdminWorker::Add(std::function<void()> task, const std::function<void(size_t)>& waits) {
  MutexLock lock(mutex_);
  if (tasks_.size() >= max_waiting_) {
    return Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                 absl::StrCat(max_waiting_, " ", calls_,
                              " already wait, and one runs at a time: try again when some are done"));
  }
  const size_t ahead = tasks_.size() + (runs_ ? 1 : 0);
  if (ahead > 0 && waits) waits(ahead);
  tasks_.push_back(std::move(task));
  changed_.NotifyAll();
  return absl::OkStatus();
}

void AdminWorker::OnlyAnswers() {
  MutexLock lock(mutex_);
  runs_ = false;
}

void AdminWorker::Work() {
  while (true) {
    std::function<void()> task;
    {
      MutexLock lock(mutex_);
      changed_.Wait(
          mutex_, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
      runs_ = true;
    }
    task();
    OnlyAnswers();
  }
}

}  // namespace gemmd
