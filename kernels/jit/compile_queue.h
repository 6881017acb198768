// What    Worker threads and the order in which work waits for them: clients, then specialised
//         kernels of layers that are served meanwhile, then prewarming, then tuning; first come,
//         first served within each.
//           queued --worker free--> running --> done
//             |--Cancel, displaced by more urgent work, closing--> dropped
// Bounds  `workers` jobs at a time; of these, at most workers - 1 (and at least one) are not a
//         client's, so that a client never waits for a running prewarm unless there is one worker
//         only. At most `max_queued` jobs wait; beyond that the least urgent one is dropped.
// Threads Every method is thread-safe. Jobs are called without a lock held.
#ifndef GEMMD_KERNELS_JIT_COMPILE_QUEUE_H_
#define GEMMD_KERNELS_JIT_COMPILE_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/mutex.h"

namespace gemmd::jit {

// Most urgent first.
enum class CompilePriority : uint8_t { kClient, kSpecialise, kPrewarm, kTuning };

class CompileQueue {
 public:
  // Called once: with OK to do the work, or with the reason why it will not be done
  // (ResourceExhausted QUEUE_FULL, Cancelled).
  using Job = std::function<void(const absl::Status& go)>;
  // `idle` is called by a worker that found nothing to do for `idle_after`.
  CompileQueue(int workers, size_t max_queued, absl::Duration idle_after,
               std::function<void()> idle);
  ~CompileQueue();  // drops what waits, finishes what runs

  // A ticket for Raise and Cancel. When the job itself is the one that must go, it is dropped.
  uint64_t Add(CompilePriority priority, Job job);
  // Makes a waiting job at least as urgent as `priority`.
  void Raise(uint64_t ticket, CompilePriority priority);
  // Forgets a waiting job without calling it. False: it is running or done.
  bool Cancel(uint64_t ticket);

  size_t queued() const;
  int running() const;

 private:
  using Place = std::pair<CompilePriority, uint64_t>;  // order of the queue

  void Work();
  // The job to run next, or nothing.
  std::map<Place, Job>::iterator Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::map<Place, Job>::iterator Find(uint64_t ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int most_background_;
  const size_t max_queued_;
  const absl::Duration idle_after_;
  const std::function<void()> idle_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::map<Place, Job> waiting_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_ticket_ ABSL_GUARDED_BY(mutex_) = 1;
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
  int background_ ABSL_GUARDED_BY(mutex_) = 0;  // running for no client
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

// Processors that this process may use, at least 1.
int UsableProcessors();

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_COMPILE_QUEUE_H_
