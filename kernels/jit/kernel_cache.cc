#include "kernels/jit/kernel_cache.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status.h"
#include "kernels/jit/compile_backend.h"
#include "kernels/jit/kernel_tiers.h"

namespace gemmd::jit {
namespace {

constexpr absl::Duration kLockPoll = absl::Milliseconds(5);
// A compilation takes seconds. An owner that holds a key's lock for longer is stuck (a stopped
// process), and compiling twice is better than never.
constexpr absl::Duration kLockPatience = absl::Minutes(2);
constexpr absl::Duration kCancelPoll = absl::Milliseconds(20);
constexpr absl::Duration kRestAfter = absl::Seconds(15);
constexpr int kMostWorkers = 32;  // a compiler at work takes a hundred megabytes

std::unique_ptr<CompileBackend> MakeBackend(const KernelCacheOptions& options) {
  if (options.helper.empty()) return InProcessBackend(options.nvrtc);
  return HelperBackend(options.helper, options.compile_limit);
}

absl::Status Unwanted() { return absl::CancelledError("nobody waits for the kernel any more"); }

// Whether those who ask with `priority` load the kernel into a GPU of this process.
bool Loads(CompilePriority priority) { return priority <= CompilePriority::kSpecialise; }

}  // namespace

// A call that misses memory joins the flight of its key, or starts it. Threads and answers wait for
// its landing; the last one that gives up takes it along.
//   GetOrCompile: start -> disk? -> queue      Ask: start -> queue
//   worker: key lock -> disk? -> compile -> write -> land
class KernelCache::State {
 public:
  State(const KernelCacheOptions& options, std::unique_ptr<DiskTier> disk, std::string warning)
      : tiers_(std::move(disk), std::move(warning)), backend_(MakeBackend(options)) {
    const int processors = std::min(UsableProcessors(), kMostWorkers);
    queue_.emplace(options.workers > 0 ? options.workers : processors, options.max_queued,
                   kRestAfter, [this] { backend_->Rest(); });
  }
  ~State() {
    Close();
    queue_.reset();
  }

  absl::StatusOr<SharedKernel> GetOrCompile(const KernelSource& source,
                                            const CompileRequest& request);
  uint64_t Ask(const KernelSource& source, CompilePriority priority, Answer answer);
  void Forget(uint64_t wish);
  SharedKernel Find(const KernelSource& source);
  void Close();
  CacheStats stats() const;
  absl::StatusOr<std::string> Compiler() { return backend_->Identity(); }
  KernelTiers& tiers() { return tiers_; }

 private:
  struct Flight {
    Flight(KernelSource kernel_source, std::string compiler_name, std::string kernel_key,
           CompilePriority initial)
        : source(std::move(kernel_source)),
          compiler(std::move(compiler_name)),
          key(std::move(kernel_key)),
          priority(initial) {}
    const KernelSource source;
    const std::string compiler;
    const std::string key;
    std::atomic<bool> unwanted{false};  // the worker may stop
    // Below: under the cache's mutex.
    CompilePriority priority;  // the most urgent of those who wait
    uint64_t ticket = 0;       // in the queue
    int waiters = 0;           // threads
    std::map<uint64_t, Answer> answers;
    bool goes_on = false;  // somebody left at a deadline and will ask again
    bool done = false;
    KernelOrigin origin = KernelOrigin::kCompiled;
    absl::StatusOr<SharedKernel> result = SharedKernel();
  };
  struct Boarding {
    std::shared_ptr<Flight> flight;
    bool starts = false;
    uint64_t wish = 0;  // with an answer
  };

  // What is known without a flight: memory has the kernel, or nobody can compile it. Otherwise
  // `compiler` is set.
  std::optional<absl::StatusOr<SharedKernel>> WithoutFlight(const KernelSource& source,
                                                            CompilePriority priority,
                                                            KernelOrigin& origin,
                                                            std::string& compiler);
  // One more who waits: this thread, or `answer`.
  absl::StatusOr<Boarding> Board(const KernelSource& source, const std::string& compiler,
                                 CompilePriority priority, Answer answer);
  bool LandFromDisk(Flight& flight);
  void Enqueue(const std::shared_ptr<Flight>& flight);
  absl::StatusOr<SharedKernel> Await(Flight& flight, const CompileRequest& request);
  void DropIfUnwanted(Flight& flight) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<CompiledKernel> Produce(Flight& flight, bool& stored);
  std::optional<CompiledKernel> AwaitLock(const Flight& flight, std::optional<KeyLock>& lock);
  absl::StatusOr<CompiledKernel> CompileNow(const Flight& flight);
  void Land(Flight& flight, absl::StatusOr<CompiledKernel> result, bool stored);
  void Settle(Flight& flight, const absl::StatusOr<SharedKernel>& result);
  std::map<uint64_t, Answer> TakeOut(Flight& flight, absl::StatusOr<SharedKernel> result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  KernelTiers tiers_;
  const std::unique_ptr<CompileBackend> backend_;

  mutable Mutex mutex_;
  CondVar changed_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, std::shared_ptr<Flight>> flights_ ABSL_GUARDED_BY(mutex_);  // by key
  std::map<uint64_t, std::shared_ptr<Flight>> wishes_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_wish_ ABSL_GUARDED_BY(mutex_) = 1;
  CacheStats counts_ ABSL_GUARDED_BY(mutex_);

  std::optional<CompileQueue> queue_;  // last: its jobs use everything above
};

absl::StatusOr<SharedKernel> KernelCache::State::GetOrCompile(const KernelSource& source,
                                                              const CompileRequest& request) {
  std::string compiler;
  KernelOrigin origin = KernelOrigin::kMemory;
  auto known = WithoutFlight(source, request.priority, origin, compiler);
  if (known.has_value()) {
    if (request.origin != nullptr) *request.origin = origin;
    return *std::move(known);
  }
  GEMMD_ASSIGN_OR_RETURN(const Boarding boarding,
                         Board(source, compiler, request.priority, nullptr));
  if (boarding.starts && !LandFromDisk(*boarding.flight)) Enqueue(boarding.flight);
  return Await(*boarding.flight, request);
}

uint64_t KernelCache::State::Ask(const KernelSource& source, CompilePriority priority,
                                 Answer answer) {
  std::string compiler;
  KernelOrigin origin = KernelOrigin::kMemory;
  const auto known = WithoutFlight(source, priority, origin, compiler);
  if (known.has_value()) {
    answer(*known);
    return 0;
  }
  const absl::StatusOr<Boarding> boarding = Board(source, compiler, priority, answer);
  if (!boarding.ok()) {
    answer(boarding.status());
    return 0;
  }
  if (boarding->starts) Enqueue(boarding->flight);
  return boarding->wish;
}

std::optional<absl::StatusOr<SharedKernel>> KernelCache::State::WithoutFlight(
    const KernelSource& source, CompilePriority priority, KernelOrigin& origin,
    std::string& compiler) {
  if (SharedKernel kernel = tiers_.FindInMemory(source); kernel != nullptr) return kernel;
  const absl::Status sane = CheckArchitecture(source.architecture);
  if (!sane.ok()) return sane;
  absl::StatusOr<std::string> identity = backend_->Identity();
  if (identity.ok()) {
    compiler = *std::move(identity);
    return std::nullopt;
  }
  auto kernel = tiers_.ReadDiskOfAnyCompiler(source);
  if (!kernel.has_value()) return identity.status();
  origin = KernelOrigin::kDisk;
  return tiers_.Keep(source, *std::move(kernel), /*on_disk=*/true, Loads(priority));
}

absl::StatusOr<KernelCache::State::Boarding> KernelCache::State::Board(const KernelSource& source,
                                                                       const std::string& compiler,
                                                                       CompilePriority priority,
                                                                       Answer answer) {
  const std::string key = KernelKey(source, compiler);
  GEMMD_RETURN_IF_ERROR(tiers_.FailureOf(key));
  Boarding boarding;
  MutexLock lock(mutex_);
  if (closed_) return absl::CancelledError("the kernel cache is closed");
  std::shared_ptr<Flight>& flight = flights_[key];
  boarding.starts = flight == nullptr;
  if (boarding.starts) {
    flight = std::make_shared<Flight>(source, compiler, key, priority);
  } else {
    ++counts_.shared_waits;
    flight->priority = std::min(flight->priority, priority);
    if (flight->ticket != 0) queue_->Raise(flight->ticket, priority);
  }
  boarding.flight = flight;
  if (answer == nullptr) {
    ++flight->waiters;
    return boarding;
  }
  boarding.wish = next_wish_++;
  flight->answers[boarding.wish] = std::move(answer);
  wishes_[boarding.wish] = flight;
  return boarding;
}

bool KernelCache::State::LandFromDisk(Flight& flight) {
  auto kernel = tiers_.ReadDisk(flight.source, flight.compiler, flight.key, /*drop=*/false);
  if (!kernel.has_value()) return false;
  {
    MutexLock lock(mutex_);
    flight.origin = KernelOrigin::kDisk;
  }
  Land(flight, *std::move(kernel), /*stored=*/true);
  return true;
}

void KernelCache::State::Enqueue(const std::shared_ptr<Flight>& flight) {
  CompilePriority priority;
  {
    MutexLock lock(mutex_);
    priority = flight->priority;
  }
  const uint64_t ticket = queue_->Add(priority, [this, flight](const absl::Status& go) {
    if (!go.ok()) return Land(*flight, go, /*stored=*/false);
    bool stored = false;
    absl::StatusOr<CompiledKernel> kernel = Produce(*flight, stored);
    Land(*flight, std::move(kernel), stored);
  });
  MutexLock lock(mutex_);
  flight->ticket = ticket;
  if (flight->priority < priority) queue_->Raise(ticket, flight->priority);
  DropIfUnwanted(*flight);
}

// A deadline that passes leaves the work to go on: its kernel will be asked for again.
absl::StatusOr<SharedKernel> KernelCache::State::Await(Flight& flight,
                                                       const CompileRequest& request) {
  // Times before 1970 are as good as "now", and safer to convert.
  const absl::Time deadline = std::max(request.deadline, absl::UnixEpoch());
  MutexLock lock(mutex_);
  while (!flight.done) {
    if (request.cancelled && request.cancelled()) {
      --flight.waiters;
      DropIfUnwanted(flight);
      return Unwanted();
    }
    if (absl::Now() >= deadline) {
      --flight.waiters;
      flight.goes_on = true;
      return absl::DeadlineExceededError(absl::StrCat(flight.source.name_expression, " for ",
                                                      flight.source.architecture,
                                                      " is still compiling"));
    }
    const absl::Time until =
        request.cancelled ? std::min(deadline, absl::Now() + kCancelPoll) : deadline;
    changed_.WaitUntil(mutex_, until, [&flight] { return flight.done; });
  }
  --flight.waiters;
  if (request.origin != nullptr) *request.origin = flight.origin;
  return flight.result;
}

void KernelCache::State::Forget(uint64_t wish) {
  MutexLock lock(mutex_);
  const auto found = wishes_.find(wish);
  if (found == wishes_.end()) return;
  const std::shared_ptr<Flight> flight = std::move(found->second);
  wishes_.erase(found);
  flight->answers.erase(wish);
  DropIfUnwanted(*flight);
}

// A flight without a ticket is asked again as soon as it has one.
void KernelCache::State::DropIfUnwanted(Flight& flight) {
  const bool wanted = flight.waiters > 0 || !flight.answers.empty() || flight.goes_on;
  if (flight.done || wanted || flight.ticket == 0) return;
  flight.unwanted = true;
  queue_->Cancel(flight.ticket);
  ++counts_.cancelled;
  TakeOut(flight, Unwanted());
}

// `stored`: whether the disk has it now.
absl::StatusOr<CompiledKernel> KernelCache::State::Produce(Flight& flight, bool& stored) {
  // Damage is dropped only under the lock: without it another process may have replaced the entry
  // since. The lock is given back when the entry is written: its next owner must find it.
  std::optional<KeyLock> lock;
  auto kernel = AwaitLock(flight, lock);
  if (!kernel.has_value()) {
    kernel = tiers_.ReadDisk(flight.source, flight.compiler, flight.key, /*drop=*/true);
  }
  if (kernel.has_value()) {
    stored = true;
    MutexLock hold(mutex_);
    flight.origin = KernelOrigin::kDisk;
    return *std::move(kernel);
  }
  absl::StatusOr<CompiledKernel> compiled = CompileNow(flight);
  stored = compiled.ok() && tiers_.Write(*compiled);
  return compiled;
}

// Waits for the key's lock, or for the kernel that its owner writes.
std::optional<CompiledKernel> KernelCache::State::AwaitLock(const Flight& flight,
                                                            std::optional<KeyLock>& lock) {
  if (tiers_.disk() == nullptr) return std::nullopt;
  const absl::Time give_up = absl::Now() + kLockPatience;
  while (absl::Now() < give_up && !flight.unwanted) {
    lock.emplace(tiers_.disk()->TryLock(flight.key));
    if (lock->state() != KeyLock::State::kBusy) return std::nullopt;
    lock.reset();
    absl::SleepFor(kLockPoll);
    auto kernel = tiers_.ReadDisk(flight.source, flight.compiler, flight.key, /*drop=*/false);
    if (kernel.has_value()) return kernel;
  }
  return std::nullopt;
}

absl::StatusOr<CompiledKernel> KernelCache::State::CompileNow(const Flight& flight) {
  if (flight.unwanted) return Unwanted();
  const absl::Time start = absl::Now();
  absl::StatusOr<CompiledKernel> kernel = backend_->Compile(
      flight.source, flight.compiler, [&flight] { return flight.unwanted.load(); });
  MutexLock lock(mutex_);
  if (absl::IsCancelled(kernel.status())) return kernel;
  ++(kernel.ok() ? counts_.compilations : counts_.failed_compilations);
  counts_.compile_time += absl::Now() - start;
  return kernel;
}

void KernelCache::State::Land(Flight& flight, absl::StatusOr<CompiledKernel> result, bool stored) {
  if (!result.ok()) {
    tiers_.RememberFailure(flight.key, result.status());
    Settle(flight, result.status());
    return;
  }
  bool loads = false;
  {
    MutexLock lock(mutex_);
    loads = Loads(flight.priority);
  }
  Settle(flight, tiers_.Keep(flight.source, *std::move(result), stored, loads));
}

// The result to everyone who waits.
void KernelCache::State::Settle(Flight& flight, const absl::StatusOr<SharedKernel>& result) {
  std::map<uint64_t, Answer> answers;
  {
    MutexLock lock(mutex_);
    if (flight.done) return;
    answers = TakeOut(flight, result);
  }
  for (const auto& [wish, answer] : answers) answer(result);
}

// Ends the flight, and returns the answers that are due.
std::map<uint64_t, KernelCache::Answer> KernelCache::State::TakeOut(
    Flight& flight, absl::StatusOr<SharedKernel> result) {
  flight.result = std::move(result);
  flight.done = true;
  std::map<uint64_t, Answer> answers = std::move(flight.answers);
  flight.answers.clear();
  for (const auto& [wish, answer] : answers) wishes_.erase(wish);
  flights_.erase(std::string(flight.key));
  changed_.NotifyAll();
  return answers;
}

SharedKernel KernelCache::State::Find(const KernelSource& source) {
  if (SharedKernel kernel = tiers_.FindInMemory(source); kernel != nullptr) return kernel;
  if (tiers_.disk() == nullptr) return nullptr;
  const absl::StatusOr<std::string> compiler = backend_->Identity();
  auto kernel = compiler.ok() ? tiers_.ReadDisk(source, *compiler, KernelKey(source, *compiler),
                                                /*drop=*/false)
                              : tiers_.ReadDiskOfAnyCompiler(source);
  if (!kernel.has_value()) return nullptr;
  return tiers_.Keep(source, *std::move(kernel), /*on_disk=*/true, /*loads=*/true);
}

void KernelCache::State::Close() {
  std::map<std::string, std::shared_ptr<Flight>> flights;
  {
    MutexLock lock(mutex_);
    closed_ = true;
    flights = flights_;
    for (const auto& [key, flight] : flights) {
      flight->unwanted = true;
      queue_->Cancel(flight->ticket);
    }
  }
  for (const auto& [key, flight] : flights) {
    Settle(*flight, absl::CancelledError("the kernel cache is closed"));
  }
}

CacheStats KernelCache::State::stats() const {
  CacheStats stats;
  {
    MutexLock lock(mutex_);
    stats = counts_;
  }
  tiers_.AddTo(stats);
  stats.queued = queue_->queued();
  stats.running = static_cast<uint64_t>(queue_->running());
  return stats;
}

absl::StatusOr<std::unique_ptr<KernelCache>> KernelCache::Open(const KernelCacheOptions& options) {
  std::unique_ptr<DiskTier> disk;
  std::string warning;
  if (!options.directory.empty()) {
    auto opened = DiskTier::Open({options.directory, options.max_bytes, options.files});
    if (opened.ok()) {
      disk = *std::move(opened);
      warning = disk->warning();
    } else {
      warning = std::string(opened.status().message());
    }
  }
  return std::unique_ptr<KernelCache>(
      new KernelCache(std::make_unique<State>(options, std::move(disk), std::move(warning))));
}

KernelCache::KernelCache(std::unique_ptr<State> state) : state_(std::move(state)) {}

KernelCache::~KernelCache() = default;

absl::StatusOr<SharedKernel> KernelCache::GetOrCompile(const KernelSource& source,
                                                       const CompileRequest& request) {
  return state_->GetOrCompile(source, request);
}

uint64_t KernelCache::Ask(const KernelSource& source, CompilePriority priority, Answer answer) {
  return state_->Ask(source, priority, std::move(answer));
}

void KernelCache::Forget(uint64_t wish) { state_->Forget(wish); }

SharedKernel KernelCache::Find(const KernelSource& source) { return state_->Find(source); }

void KernelCache::Close() { state_->Close(); }

std::optional<QuarantineRecord> KernelCache::Quarantined(const std::string& key, int driver) const {
  return state_->tiers().quarantine().Find(key, driver);
}

void KernelCache::Quarantine(const CompiledKernel& kernel, int driver, absl::string_view why) {
  state_->tiers().quarantine().Add(kernel, driver, why);
}

CacheStats KernelCache::stats() const { return state_->stats(); }

absl::StatusOr<std::string> KernelCache::Compiler() { return state_->Compiler(); }

void KernelCache::ForgetFailures() { state_->tiers().Forget(); }

DiskTier* KernelCache::disk() { return state_->tiers().disk(); }

}  // namespace gemmd::jit
