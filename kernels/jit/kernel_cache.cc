#include "kernels/jit/kernel_cache.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status.h"
#include "kernels/jit/cache_entry.h"
#include "kernels/jit/compile_backend.h"
#include "kernels/jit/kernel_memory.h"

namespace gemmd::jit {
namespace {

constexpr absl::Duration kLockPoll = absl::Milliseconds(5);
// A compilation takes seconds. An owner that holds a key's lock for longer is stuck (a stopped
// process), and compiling twice is better than never.
constexpr absl::Duration kLockPatience = absl::Minutes(2);
constexpr absl::Duration kCancelPoll = absl::Milliseconds(20);
constexpr absl::Duration kRestAfter = absl::Seconds(15);
constexpr absl::Duration kScanPause = absl::Seconds(10);
constexpr int kMostWorkers = 32;  // a compiler at work takes a hundred megabytes

std::unique_ptr<CompileBackend> MakeBackend(const KernelCacheOptions& options) {
  if (options.helper.empty()) return InProcessBackend(options.nvrtc);
  return HelperBackend(options.helper, options.compile_limit);
}

}  // namespace

// A call that misses memory joins the flight of its key, or starts it: the caller reads the disk, a
// worker does the rest, and a caller may leave at its deadline while the work goes on.
//   caller: start -> disk? -> queue      worker: key lock -> disk again? -> compile -> write -> done
class KernelCache::State {
 public:
  State(const KernelCacheOptions& options, std::unique_ptr<DiskTier> disk, std::string warning)
      : disk_(std::move(disk)), backend_(MakeBackend(options)) {
    stats_.warning = std::move(warning);
    const int processors = std::min(UsableProcessors(), kMostWorkers);
    queue_.emplace(options.workers > 0 ? options.workers : processors, options.max_queued,
                   kRestAfter, [this] { backend_->Rest(); });
  }
  ~State() {
    {
      MutexLock lock(mutex_);
      closing_ = true;
    }
    queue_.reset();
  }

  absl::StatusOr<SharedKernel> GetOrCompile(const KernelSource& source,
                                            const CompileRequest& request);
  CacheStats stats() const;
  absl::StatusOr<std::string> Compiler() { return backend_->Identity(); }
  void ForgetFailures() {
    MutexLock lock(mutex_);
    memory_.ForgetFailures();
  }
  DiskTier* disk() const { return disk_.get(); }

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
    // Below: under the cache's mutex.
    CompilePriority priority;  // the most urgent of those who wait
    uint64_t ticket = 0;       // in the queue
    int waiters = 0;
    bool done = false;
    KernelOrigin origin = KernelOrigin::kCompiled;
    absl::StatusOr<SharedKernel> result = SharedKernel();
  };

  absl::StatusOr<SharedKernel> FromAnyCompiler(const KernelSource& source, const absl::Status& why,
                                               const CompileRequest& request);
  std::set<std::string> RecordedCompilers();
  void Launch(const std::shared_ptr<Flight>& flight);
  void Join(Flight& flight, CompilePriority priority) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<SharedKernel> Await(Flight& flight, const CompileRequest& request);
  void Leave(Flight& flight, bool cancelled) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<CompiledKernel> Produce(Flight& flight, bool& stored);
  std::optional<CompiledKernel> ReadDisk(const KernelSource& source, const std::string& compiler,
                                         const std::string& key, bool drop);
  std::optional<CompiledKernel> AwaitLock(const Flight& flight, std::optional<KeyLock>& lock);
  void CountDrop(const std::string& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<CompiledKernel> CompileNow(const Flight& flight);
  bool Write(const CompiledKernel& kernel);
  void Land(Flight& flight, absl::StatusOr<CompiledKernel> result, bool stored);
  bool closing() const {
    MutexLock lock(mutex_);
    return closing_;
  }

  const std::unique_ptr<DiskTier> disk_;
  const std::unique_ptr<CompileBackend> backend_;

  mutable Mutex mutex_;
  CondVar changed_;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  KernelMemory memory_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<Flight>> flights_ ABSL_GUARDED_BY(mutex_);
  CacheStats stats_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> recorded_compilers_ ABSL_GUARDED_BY(mutex_);
  absl::Time next_scan_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();

  std::optional<CompileQueue> queue_;  // last: its jobs use everything above
};

absl::StatusOr<SharedKernel> KernelCache::State::GetOrCompile(const KernelSource& source,
                                                              const CompileRequest& request) {
  {
    MutexLock lock(mutex_);
    if (SharedKernel kernel = memory_.Find(source); kernel != nullptr) {
      ++stats_.memory_hits;
      if (request.origin != nullptr) *request.origin = KernelOrigin::kMemory;
      return kernel;
    }
  }
  GEMMD_RETURN_IF_ERROR(CheckArchitecture(source.architecture));
  const absl::StatusOr<std::string> compiler = backend_->Identity();
  if (!compiler.ok()) return FromAnyCompiler(source, compiler.status(), request);
  const std::string key = KernelKey(source, *compiler);
  std::shared_ptr<Flight> flight;
  bool starts = false;
  {
    MutexLock lock(mutex_);
    GEMMD_RETURN_IF_ERROR(memory_.FailureOf(key, absl::Now()));
    std::shared_ptr<Flight>& place = flights_[key];
    starts = place == nullptr;
    if (starts) place = std::make_shared<Flight>(source, *compiler, key, request.priority);
    flight = place;
    if (!starts) Join(*flight, request.priority);
    ++flight->waiters;
  }
  if (starts) Launch(flight);
  return Await(*flight, request);
}

// Without a compiler the kernels of whichever compiler filled the directory are as good as any.
absl::StatusOr<SharedKernel> KernelCache::State::FromAnyCompiler(const KernelSource& source,
                                                                 const absl::Status& why,
                                                                 const CompileRequest& request) {
  for (const std::string& compiler : RecordedCompilers()) {
    const std::string key = KernelKey(source, compiler);
    auto read = ReadDisk(source, compiler, key, /*drop=*/false);
    if (!read.has_value()) continue;
    auto kernel = std::make_shared<const CompiledKernel>(*std::move(read));
    const bool keep = request.priority == CompilePriority::kClient;
    disk_->Used(key, keep);
    if (request.origin != nullptr) *request.origin = KernelOrigin::kDisk;
    MutexLock lock(mutex_);
    if (keep) memory_.Keep(source, kernel);
    return kernel;
  }
  return why;
}

std::set<std::string> KernelCache::State::RecordedCompilers() {
  if (disk_ == nullptr) return {};
  {
    MutexLock lock(mutex_);
    if (absl::Now() < next_scan_) return recorded_compilers_;
    next_scan_ = absl::Now() + kScanPause;
  }
  std::set<std::string> compilers;
  for (const DiskTier::Listed& entry : disk_->List()) {
    const auto kernel = disk_->Read(entry.key);
    if (kernel.ok()) compilers.insert(kernel->compiler);
  }
  MutexLock lock(mutex_);
  recorded_compilers_ = compilers;
  return compilers;
}

void KernelCache::State::Join(Flight& flight, CompilePriority priority) {
  ++stats_.shared_waits;
  if (priority >= flight.priority) return;
  flight.priority = priority;
  if (flight.ticket != 0) queue_->Raise(flight.ticket, priority);
}

void KernelCache::State::Launch(const std::shared_ptr<Flight>& flight) {
  if (disk_ != nullptr) {
    if (auto kernel = ReadDisk(flight->source, flight->compiler, flight->key, /*drop=*/false)) {
      {
        MutexLock lock(mutex_);
        flight->origin = KernelOrigin::kDisk;
      }
      Land(*flight, *std::move(kernel), /*stored=*/true);
      return;
    }
  }
  CompilePriority priority;
  {
    MutexLock lock(mutex_);
    priority = flight->priority;
  }
  const uint64_t ticket = queue_->Add(priority, [this, flight](const absl::Status& go) {
    if (!go.ok()) {
      Land(*flight, go, /*stored=*/false);
      return;
    }
    bool stored = false;
    absl::StatusOr<CompiledKernel> kernel = Produce(*flight, stored);
    Land(*flight, std::move(kernel), stored);
  });
  MutexLock lock(mutex_);
  flight->ticket = ticket;
  if (flight->priority < priority) queue_->Raise(ticket, flight->priority);
}

absl::StatusOr<SharedKernel> KernelCache::State::Await(Flight& flight,
                                                       const CompileRequest& request) {
  // Times before 1970 are as good as "now", and safer to convert.
  const absl::Time deadline = std::max(request.deadline, absl::UnixEpoch());
  MutexLock lock(mutex_);
  while (!flight.done) {
    const bool cancelled = request.cancelled && request.cancelled();
    if (cancelled || absl::Now() >= deadline) {
      Leave(flight, cancelled);
      if (cancelled) return absl::CancelledError("nobody waits for the kernel any more");
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

// A deadline that passes leaves the work to go on: its kernel will be asked for again.
void KernelCache::State::Leave(Flight& flight, bool cancelled) {
  --flight.waiters;
  if (!cancelled || flight.waiters > 0 || flight.ticket == 0) return;
  if (!queue_->Cancel(flight.ticket)) return;
  ++stats_.cancelled;
  flight.result = absl::CancelledError("nobody waited for the kernel any more");
  flight.done = true;
  flights_.erase(std::string(flight.key));
  changed_.NotifyAll();
}

// `stored`: whether the disk has it now.
absl::StatusOr<CompiledKernel> KernelCache::State::Produce(Flight& flight, bool& stored) {
  if (disk_ == nullptr) return CompileNow(flight);
  // Damage is dropped only under the lock: without it another process may have replaced the entry
  // since. The lock is given back when the entry is written: its next owner must find it.
  std::optional<KeyLock> lock;
  auto kernel = AwaitLock(flight, lock);
  if (!kernel.has_value()) {
    kernel = ReadDisk(flight.source, flight.compiler, flight.key, /*drop=*/true);
  }
  if (kernel.has_value()) {
    stored = true;
    MutexLock hold(mutex_);
    flight.origin = KernelOrigin::kDisk;
    return *std::move(kernel);
  }
  absl::StatusOr<CompiledKernel> compiled = CompileNow(flight);
  stored = compiled.ok() && Write(*compiled);
  return compiled;
}

std::optional<CompiledKernel> KernelCache::State::ReadDisk(const KernelSource& source,
                                                           const std::string& compiler,
                                                           const std::string& key, bool drop) {
  absl::StatusOr<CompiledKernel> kernel = disk_->Read(key);
  absl::Status status = kernel.status();
  if (status.ok()) status = CheckOrigin(*kernel, source.architecture, compiler);
  const bool unusable = absl::IsDataLoss(status);
  if (unusable && drop) disk_->Drop(key);
  MutexLock lock(mutex_);
  if (status.ok()) {
    ++stats_.disk_hits;
    return *std::move(kernel);
  }
  if (unusable && drop) CountDrop(ReasonOf(status));
  return std::nullopt;
}

void KernelCache::State::CountDrop(const std::string& reason) {
  if (reason == "CACHE_ENTRY_STALE") {
    ++stats_.stale_entries;
  } else if (reason == "CACHE_ENTRY_FOREIGN") {
    ++stats_.foreign_entries;
  } else {
    ++stats_.damaged_entries;
  }
}

// Waits for the key's lock, or for the kernel that its owner writes.
std::optional<CompiledKernel> KernelCache::State::AwaitLock(const Flight& flight,
                                                            std::optional<KeyLock>& lock) {
  const absl::Time give_up = absl::Now() + kLockPatience;
  while (absl::Now() < give_up && !closing()) {
    lock.emplace(disk_->TryLock(flight.key));
    if (lock->state() != KeyLock::State::kBusy) return std::nullopt;
    lock.reset();
    absl::SleepFor(kLockPoll);
    auto kernel = ReadDisk(flight.source, flight.compiler, flight.key, /*drop=*/false);
    if (kernel.has_value()) return kernel;
  }
  return std::nullopt;
}

absl::StatusOr<CompiledKernel> KernelCache::State::CompileNow(const Flight& flight) {
  const absl::Time start = absl::Now();
  absl::StatusOr<CompiledKernel> kernel = backend_->Compile(flight.source, flight.compiler);
  MutexLock lock(mutex_);
  ++(kernel.ok() ? stats_.compilations : stats_.failed_compilations);
  stats_.compile_time += absl::Now() - start;
  return kernel;
}

bool KernelCache::State::Write(const CompiledKernel& kernel) {
  const absl::Status written = disk_->Write(kernel);
  if (written.ok()) return true;
  MutexLock lock(mutex_);
  ++stats_.write_failures;
  stats_.warning = std::string(written.message());
  return false;
}

// Ends the flight: the result to everyone who waits, and to memory when a client is among them.
void KernelCache::State::Land(Flight& flight, absl::StatusOr<CompiledKernel> result, bool stored) {
  bool keep = false;
  {
    MutexLock lock(mutex_);
    keep = !stored || flight.priority == CompilePriority::kClient;
  }
  if (result.ok() && stored) {
    disk_->Used(flight.key, keep);
    const DiskTier::Eviction eviction = disk_->Evict();
    MutexLock lock(mutex_);
    stats_.evicted_entries += eviction.entries;
    stats_.evicted_bytes += eviction.bytes;
  }
  MutexLock lock(mutex_);
  if (result.ok()) {
    flight.result = std::make_shared<const CompiledKernel>(*std::move(result));
    if (keep) memory_.Keep(flight.source, *flight.result);
  } else {
    flight.result = result.status();
    memory_.RememberFailure(flight.key, result.status(), absl::Now());
  }
  flight.done = true;
  flights_.erase(std::string(flight.key));
  changed_.NotifyAll();
}

CacheStats KernelCache::State::stats() const {
  MutexLock lock(mutex_);
  CacheStats stats = stats_;
  stats.queued = queue_->queued();
  stats.running = static_cast<uint64_t>(queue_->running());
  if (disk_ != nullptr) stats.disk_bytes = disk_->bytes();
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

CacheStats KernelCache::stats() const { return state_->stats(); }

absl::StatusOr<std::string> KernelCache::Compiler() { return state_->Compiler(); }

void KernelCache::ForgetFailures() { state_->ForgetFailures(); }

DiskTier* KernelCache::disk() { return state_->disk(); }

}  // namespace gemmd::jit
