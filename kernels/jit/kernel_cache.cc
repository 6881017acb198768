#include "kernels/jit/kernel_cache.h"

#include <algorithm>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status.h"
#include "kernels/jit/disk_tier.h"

namespace gemmd::jit {
namespace {

using SharedKernel = std::shared_ptr<const CompiledKernel>;

constexpr absl::Duration kLockPoll = absl::Milliseconds(5);
// A compilation takes seconds. An owner that holds a key's lock for longer is stuck (a stopped
// process), and compiling twice is better than never.
constexpr absl::Duration kLockPatience = absl::Minutes(2);

}  // namespace

// A call that misses memory joins the flight of its key, or starts it on a thread of its own: a
// caller may leave at its deadline, the work goes on.
//   start -> disk? -> key lock -> disk again? -> compile slot -> compile -> write -> done
class KernelCache::State {
 public:
  State(std::optional<DiskTier> disk, std::string warning, const NvrtcTable* nvrtc)
      : disk_(std::move(disk)), nvrtc_(nvrtc) {
    stats_.warning = std::move(warning);
  }
  ~State();

  absl::StatusOr<SharedKernel> GetOrCompile(const KernelSource& source, absl::Time deadline);
  CacheStats stats() const {
    MutexLock lock(mutex_);
    return stats_;
  }

 private:
  struct Flight {
    bool done = false;
    absl::StatusOr<SharedKernel> result = SharedKernel();
    std::thread thread;
  };

  absl::StatusOr<const NvrtcTable*> Compiler() const;
  std::shared_ptr<Flight> Join(const KernelSource& source, const NvrtcTable& nvrtc,
                               const std::string& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run(Flight& flight, const KernelSource& source, const NvrtcTable& nvrtc,
           const std::string& key);
  absl::StatusOr<CompiledKernel> Produce(const KernelSource& source, const NvrtcTable& nvrtc,
                                         const std::string& key);
  absl::StatusOr<CompiledKernel> ReadOrCompile(const KernelSource& source, const NvrtcTable& nvrtc,
                                               const std::string& key);
  std::optional<CompiledKernel> ReadDisk(const std::string& key, bool drop_damaged);
  std::optional<CompiledKernel> AwaitLock(const std::string& key, std::optional<KeyLock>& lock);
  absl::StatusOr<CompiledKernel> CompileAndWrite(const KernelSource& source,
                                                 const NvrtcTable& nvrtc);
  absl::StatusOr<CompiledKernel> CompileInSlot(const KernelSource& source, const NvrtcTable& nvrtc);
  void Finish(Flight& flight, const std::string& key, absl::StatusOr<CompiledKernel> result);
  bool closing() const {
    MutexLock lock(mutex_);
    return closing_;
  }

  const std::optional<DiskTier> disk_;
  const NvrtcTable* const nvrtc_;

  mutable Mutex mutex_;
  CondVar changed_;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  unsigned compiling_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, SharedKernel> kernels_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, absl::Status> failures_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::shared_ptr<Flight>> flights_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> finished_ ABSL_GUARDED_BY(mutex_);
  CacheStats stats_ ABSL_GUARDED_BY(mutex_);
};

KernelCache::State::~State() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(mutex_);
    closing_ = true;
    changed_.Wait(mutex_, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return flights_.empty(); });
    threads.swap(finished_);
  }
  for (std::thread& thread : threads) thread.join();
}

absl::StatusOr<const NvrtcTable*> KernelCache::State::Compiler() const {
  if (nvrtc_ != nullptr) return nvrtc_;
  return LoadNvrtc();
}

absl::StatusOr<SharedKernel> KernelCache::State::GetOrCompile(const KernelSource& source,
                                                              absl::Time deadline) {
  GEMMD_ASSIGN_OR_RETURN(const NvrtcTable* nvrtc, Compiler());
  const std::string key = KernelKey(source, *nvrtc);
  MutexLock lock(mutex_);
  if (const auto found = kernels_.find(key); found != kernels_.end()) {
    ++stats_.memory_hits;
    return found->second;
  }
  if (const auto failed = failures_.find(key); failed != failures_.end()) return failed->second;
  const std::shared_ptr<Flight> flight = Join(source, *nvrtc, key);
  // Times before 1970 are as good as "now", and safer to convert.
  const absl::Time until = std::max(deadline, absl::UnixEpoch());
  if (!changed_.WaitUntil(mutex_, until, [&flight] { return flight->done; })) {
    return absl::DeadlineExceededError(
        absl::StrCat(source.name_expression, " for ", source.architecture, " is still compiling"));
  }
  return flight->result;
}

std::shared_ptr<KernelCache::State::Flight> KernelCache::State::Join(const KernelSource& source,
                                                                     const NvrtcTable& nvrtc,
                                                                     const std::string& key) {
  for (std::thread& thread : finished_) thread.join();  // they have left the lock for good
  finished_.clear();
  std::shared_ptr<Flight>& flight = flights_[key];
  if (flight != nullptr) {
    ++stats_.shared_waits;
    return flight;
  }
  flight = std::make_shared<Flight>();
  flight->thread =
      std::thread([this, flight, source, &nvrtc, key] { Run(*flight, source, nvrtc, key); });
  return flight;
}

void KernelCache::State::Run(Flight& flight, const KernelSource& source, const NvrtcTable& nvrtc,
                             const std::string& key) {
  Finish(flight, key, Produce(source, nvrtc, key));
}

void KernelCache::State::Finish(Flight& flight, const std::string& key,
                                absl::StatusOr<CompiledKernel> result) {
  MutexLock lock(mutex_);
  if (result.ok()) {
    flight.result = std::make_shared<const CompiledKernel>(*std::move(result));
    kernels_[key] = *flight.result;
  } else {
    flight.result = result.status();
    if (ReasonOf(result.status()) == "COMPILE_FAILED") failures_[key] = result.status();
  }
  flight.done = true;
  finished_.push_back(std::move(flight.thread));
  flights_.erase(key);
  changed_.NotifyAll();
}

absl::StatusOr<CompiledKernel> KernelCache::State::Produce(const KernelSource& source,
                                                           const NvrtcTable& nvrtc,
                                                           const std::string& key) {
  if (!disk_.has_value()) return CompileInSlot(source, nvrtc);
  return ReadOrCompile(source, nvrtc, key);
}

absl::StatusOr<CompiledKernel> KernelCache::State::ReadOrCompile(const KernelSource& source,
                                                                 const NvrtcTable& nvrtc,
                                                                 const std::string& key) {
  // Damage is dropped only under the lock: without it another process may have replaced the entry
  // since.
  if (auto kernel = ReadDisk(key, /*drop_damaged=*/false)) return *std::move(kernel);
  std::optional<KeyLock> lock;
  if (auto kernel = AwaitLock(key, lock)) return *std::move(kernel);
  if (auto kernel = ReadDisk(key, /*drop_damaged=*/true)) return *std::move(kernel);
  return CompileAndWrite(source, nvrtc);
}

std::optional<CompiledKernel> KernelCache::State::ReadDisk(const std::string& key,
                                                           bool drop_damaged) {
  absl::StatusOr<CompiledKernel> kernel = disk_->Read(key);
  const bool damaged = absl::IsDataLoss(kernel.status());
  if (damaged && drop_damaged) disk_->Drop(key);
  MutexLock lock(mutex_);
  if (kernel.ok()) {
    ++stats_.disk_hits;
    return *std::move(kernel);
  }
  if (damaged && drop_damaged) ++stats_.damaged_entries;
  return std::nullopt;
}

// Waits for the key's lock, or for the kernel that its owner writes.
std::optional<CompiledKernel> KernelCache::State::AwaitLock(const std::string& key,
                                                            std::optional<KeyLock>& lock) {
  const absl::Time give_up = absl::Now() + kLockPatience;
  while (absl::Now() < give_up && !closing()) {
    lock.emplace(disk_->TryLock(key));
    if (lock->state() != KeyLock::State::kBusy) return std::nullopt;
    lock.reset();
    absl::SleepFor(kLockPoll);
    if (auto kernel = ReadDisk(key, /*drop_damaged=*/false)) return kernel;
  }
  return std::nullopt;
}

absl::StatusOr<CompiledKernel> KernelCache::State::CompileAndWrite(const KernelSource& source,
                                                                   const NvrtcTable& nvrtc) {
  GEMMD_ASSIGN_OR_RETURN(CompiledKernel kernel, CompileInSlot(source, nvrtc));
  const absl::Status written = disk_->Write(kernel);
  if (!written.ok()) {
    MutexLock lock(mutex_);
    ++stats_.write_failures;
    stats_.warning = std::string(written.message());
  }
  return kernel;
}

// At most one compilation per processor at a time.
absl::StatusOr<CompiledKernel> KernelCache::State::CompileInSlot(const KernelSource& source,
                                                                 const NvrtcTable& nvrtc) {
  const unsigned slots = std::max(1u, std::thread::hardware_concurrency());
  {
    MutexLock lock(mutex_);
    changed_.Wait(mutex_,
                  [this, slots]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return compiling_ < slots; });
    if (closing_) return absl::CancelledError("the kernel cache is closing");
    ++compiling_;
  }
  const absl::Time start = absl::Now();
  absl::StatusOr<CompiledKernel> kernel = Compile(source, nvrtc);
  MutexLock lock(mutex_);
  --compiling_;
  ++(kernel.ok() ? stats_.compilations : stats_.failed_compilations);
  stats_.compile_time += absl::Now() - start;
  changed_.NotifyAll();
  return kernel;
}

absl::StatusOr<std::unique_ptr<KernelCache>> KernelCache::Open(
    const std::filesystem::path& directory, const NvrtcTable* nvrtc) {
  std::optional<DiskTier> disk;
  std::string warning;
  if (!directory.empty()) {
    absl::StatusOr<DiskTier> opened = DiskTier::Open(directory);
    if (opened.ok()) {
      disk.emplace(*std::move(opened));
    } else {
      warning = std::string(opened.status().message());
    }
  }
  return std::unique_ptr<KernelCache>(
      new KernelCache(std::make_unique<State>(std::move(disk), std::move(warning), nvrtc)));
}

KernelCache::KernelCache(std::unique_ptr<State> state) : state_(std::move(state)) {}

KernelCache::~KernelCache() = default;

absl::StatusOr<SharedKernel> KernelCache::GetOrCompile(const KernelSource& source,
                                                       absl::Time deadline) {
  return state_->GetOrCompile(source, deadline);
}

CacheStats KernelCache::stats() const { return state_->stats(); }

}  // namespace gemmd::jit
