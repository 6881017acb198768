#include "kernels/jit/compile_queue.h"

#include <sched.h>

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status.h"

namespace gemmd::jit {

int UsableProcessors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

CompileQueue::CompileQueue(int workers, size_t max_queued, absl::Duration idle_after,
                           std::function<void()> idle)
    : most_background_(std::max(1, workers - 1)),
      max_queued_(max_queued),
      idle_after_(idle_after),
      idle_(std::move(idle)) {
  for (int i = 0; i < std::max(1, workers); ++i) threads_.emplace_back([this] { Work(); });
}

CompileQueue::~CompileQueue() {
  std::map<Place, Job> dropped;
  {
    MutexLock lock(mutex_);
    closing_ = true;
    dropped.swap(waiting_);
    changed_.NotifyAll();
  }
  for (auto& [place, job] : dropped) job(absl::CancelledError("the kernel cache is closing"));
  for (std::thread& thread : threads_) thread.join();
}

uint64_t CompileQueue::Add(CompilePriority priority, Job job) {
  Job dropped;
  uint64_t ticket = 0;
  {
    MutexLock lock(mutex_);
    ticket = next_ticket_++;
    waiting_.emplace(Place(priority, ticket), std::move(job));
    if (waiting_.size() > max_queued_ || closing_) {
      const auto last = std::prev(waiting_.end());
      dropped = std::move(last->second);
      waiting_.erase(last);
    }
    changed_.NotifyAll();
  }
  if (dropped) {
    dropped(Error(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                  absl::StrCat(max_queued_, " kernels already wait for the compiler")));
  }
  return ticket;
}

std::map<CompileQueue::Place, CompileQueue::Job>::iterator CompileQueue::Find(uint64_t ticket) {
  return std::find_if(waiting_.begin(), waiting_.end(),
                      [ticket](const auto& waiting) { return waiting.first.second == ticket; });
}

void CompileQueue::Raise(uint64_t ticket, CompilePriority priority) {
  MutexLock lock(mutex_);
  const auto found = Find(ticket);
  if (found == waiting_.end() || found->first.first <= priority) return;
  Job job = std::move(found->second);
  waiting_.erase(found);
  waiting_.emplace(Place(priority, ticket), std::move(job));
  changed_.NotifyAll();
}

bool CompileQueue::Cancel(uint64_t ticket) {
  MutexLock lock(mutex_);
  const auto found = Find(ticket);
  if (found == waiting_.end()) return false;
  waiting_.erase(found);
  return true;
}

std::map<CompileQueue::Place, CompileQueue::Job>::iterator CompileQueue::Next() {
  const auto first = waiting_.begin();
  if (first == waiting_.end()) return first;
  const bool for_client = first->first.first == CompilePriority::kClient;
  return for_client || background_ < most_background_ ? first : waiting_.end();
}

void CompileQueue::Work() {
  while (true) {
    Job job;
    bool background = false;
    {
      MutexLock lock(mutex_);
      const auto ready = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return closing_ || Next() != waiting_.end();
      };
      const bool found = changed_.WaitUntil(mutex_, absl::Now() + idle_after_, ready);
      if (closing_) return;
      if (found) {
        const auto next = Next();
        background = next->first.first != CompilePriority::kClient;
        job = std::move(next->second);
        waiting_.erase(next);
        ++running_;
        background_ += background;
      }
    }
    if (!job) {
      idle_();
      continue;
    }
    job(absl::OkStatus());
    MutexLock lock(mutex_);
    --running_;
    background_ -= background;
    changed_.NotifyAll();
  }
}

size_t CompileQueue::queued() const {
  MutexLock lock(mutex_);
  return waiting_.size();
}

int CompileQueue::running() const {
  MutexLock lock(mutex_);
  return running_;
}

}  // namespace gemmd::jit
