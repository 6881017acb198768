// What    Who waits for which kernel. The first that asks for a key starts its flight, others join;
//         threads and answers wait for its landing, and the last one that gives up takes it along.
//           Board ──starts──▶ Queued ──▶ (built by a worker) ──▶ Settle
//             └─joins─▶ Await, or an answer        └─nobody waits any more──▶ dropped
// Errors  Cancelled: the cache is closed, the caller said so, or nobody waits.  DeadlineExceeded:
//         the caller's deadline came first; the flight goes on.
// Threads Every method is thread-safe; answers are called without a lock held.
#ifndef GEMMD_KERNELS_JIT_FLIGHTS_H_
#define GEMMD_KERNELS_JIT_FLIGHTS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/mutex.h"
#include "kernels/jit/cache_stats.h"
#include "kernels/jit/compile_queue.h"
#include "kernels/jit/compile_request.h"
#include "kernels/jit/compiler.h"
#include "kernels/jit/kernel_memory.h"

namespace gemmd::jit {

using KernelAnswer = std::function<void(const absl::StatusOr<SharedKernel>&)>;

// One kernel on its way.
class Flight {
 public:
  Flight(KernelSource kernel_source, std::string compiler_name, std::string kernel_key,
         CompilePriority initial)
      : source(std::move(kernel_source)),
        compiler(std::move(compiler_name)),
        key(std::move(kernel_key)),
        priority_(initial) {}

  const KernelSource source;
  const std::string compiler;
  const std::string key;
  std::atomic<bool> unwanted{false};  // the worker may stop

 private:
  friend class Flights;

  // Under the mutex of Flights.
  CompilePriority priority_;  // the most urgent of those who wait
  uint64_t ticket_ = 0;       // in the queue
  int waiters_ = 0;           // threads
  std::map<uint64_t, KernelAnswer> answers_;
  bool goes_on_ = false;  // somebody left at a deadline and will ask again
  bool done_ = false;
  KernelOrigin origin_ = KernelOrigin::kCompiled;
  absl::StatusOr<SharedKernel> result_ = SharedKernel();
};

class Flights {
 public:
  // `queue`: where flights wait for a worker.
  explicit Flights(CompileQueue& queue) : queue_(queue) {}

  struct Boarding {
    std::shared_ptr<Flight> flight;
    bool starts = false;
    uint64_t wish = 0;  // with an answer
  };
  // One more who waits: this thread, which calls Await, or `answer`.
  absl::StatusOr<Boarding> Board(const KernelSource& source, const std::string& compiler,
                                 const std::string& key, CompilePriority priority,
                                 KernelAnswer answer);

  CompilePriority PriorityOf(const Flight& flight) const;
  // The flight has `ticket` in the queue, where it was put with `priority`.
  void Queued(Flight& flight, uint64_t ticket, CompilePriority priority);

  absl::StatusOr<SharedKernel> Await(Flight& flight, const CompileRequest& request);
  void Forget(uint64_t wish);

  // The result to everyone who waits; the flight is over. `origin` is of a result.
  void Settle(Flight& flight, const absl::StatusOr<SharedKernel>& result, KernelOrigin origin);
  // Settles all with Cancelled. Board refuses from now on.
  void Close();

  void AddTo(CacheStats& stats) const;

 private:
  void DropIfUnwanted(Flight& flight) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::map<uint64_t, KernelAnswer> TakeOut(Flight& flight, absl::StatusOr<SharedKernel> result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  CompileQueue& queue_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, std::shared_ptr<Flight>> flights_ ABSL_GUARDED_BY(mutex_);  // by key
  std::map<uint64_t, std::shared_ptr<Flight>> wishes_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_wish_ ABSL_GUARDED_BY(mutex_) = 1;
  uint64_t shared_waits_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t cancelled_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Cancelled: what a flight ends with when everybody gave up.
absl::Status Unwanted();

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_FLIGHTS_H_
