#include "kernels/kernel_store.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status.h"
#include "kernels/jit/bundle.h"
#include "kernels/jit/compile_helper.h"
#include "kernels/jit/kernel_cache.h"
#include "kernels/prewarm_work.h"

namespace gemmd {
namespace {

absl::Status NoDirectory() {
  return Error(absl::StatusCode::kFailedPrecondition, "NO_CACHE_DIRECTORY",
               "the kernel cache has no directory: kernels live in memory only");
}

// Counts steps, passes them on one at a time, and tells how the whole ends.
class Reporter {
 public:
  Reporter(int total, const std::function<bool(const PrewarmStep&)>& progress,
           const std::function<bool()>& asked)
      : total_(total), progress_(progress), asked_(asked) {}

  void Report(PrewarmStep step) {
    MutexLock lock(mutex_);
    step.done = ++done_;
    step.total = total_;
    if (step.outcome == PrewarmOutcome::kNotStored && ++not_stored_ == 1) why_ = step.message;
    if (!cancelled_ && !progress_(step)) cancelled_ = true;
  }
  void Cancel() { cancelled_ = true; }
  bool cancelled() {
    if (asked_ && asked_()) cancelled_ = true;
    return cancelled_;
  }

  absl::Status Result() const {
    if (cancelled_) return absl::CancelledError("the prewarm was cancelled");
    MutexLock lock(mutex_);
    if (not_stored_ == 0) return absl::OkStatus();
    return Error(absl::StatusCode::kUnavailable, "CACHE_WRITE",
                 absl::StrCat(not_stored_, " of ", total_,
                              " kernels are not in the cache's directory; the first: ", why_));
  }

 private:
  const int total_;
  const std::function<bool(const PrewarmStep&)>& progress_;
  const std::function<bool()>& asked_;
  mutable Mutex mutex_;
  int not_stored_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string why_ ABSL_GUARDED_BY(mutex_);  // of the first
  int done_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> cancelled_{false};
};

// A kernel that came from the disk is there; any other must reach it.
void Store(jit::KernelCache& cache, const jit::CompiledKernel& kernel, PrewarmStep& step) {
  const absl::Status stored = cache.Store(kernel);
  if (stored.ok()) return;
  step.message = absl::StrCat(
      step.outcome == PrewarmOutcome::kCompiled ? "compiled" : "in memory", ", but not stored: ",
      stored.message());
  step.outcome = PrewarmOutcome::kNotStored;
}

// Cancelled: by the reporter, or the cache is closed.
absl::StatusOr<PrewarmStep> CompileOne(jit::KernelCache& cache, const jit::KernelSource& program,
                                       Reporter& reporter) {
  jit::KernelOrigin origin = jit::KernelOrigin::kCompiled;
  const absl::Time start = absl::Now();
  const auto kernel = cache.GetOrCompile(
      program, jit::CompileRequest{.priority = jit::CompilePriority::kPrewarm,
                                   .cancelled = [&] { return reporter.cancelled(); },
                                   .origin = &origin});
  if (absl::IsCancelled(kernel.status())) return kernel.status();
  PrewarmStep step;
  step.kernel = program.label;
  step.architecture = program.architecture;
  step.took = absl::Now() - start;
  if (!kernel.ok()) {
    step.outcome = PrewarmOutcome::kFailed;
    step.message = std::string(kernel.status().message());
    return step;
  }
  if (origin == jit::KernelOrigin::kDisk) return step;
  if (origin == jit::KernelOrigin::kCompiled) step.outcome = PrewarmOutcome::kCompiled;
  Store(cache, **kernel, step);
  return step;
}

}  // namespace

absl::StatusOr<std::shared_ptr<KernelStore>> KernelStore::Open(const KernelStoreOptions& options) {
  GEMMD_ASSIGN_OR_RETURN(
      std::shared_ptr<jit::KernelCache> cache,
      jit::KernelCache::Open(jit::KernelCacheOptions{.directory = options.directory,
                                                     .max_bytes = options.max_bytes,
                                                     .helper = options.compile_helper,
                                                     .workers = options.compile_workers}));
  return std::shared_ptr<KernelStore>(new KernelStore(std::move(cache)));
}

absl::Status KernelStore::Prewarm(const std::vector<PrewarmLayer>& layers,
                                  const std::vector<std::string>& architectures,
                                  const std::function<bool(const PrewarmStep&)>& progress,
                                  const std::vector<RowRange>& rows,
                                  const std::function<bool()>& cancelled,
                                  const PrewarmTuning& tuning) {
  GEMMD_ASSIGN_OR_RETURN(const PrewarmWork work,
                         PlanPrewarm(*cache_, layers, architectures, rows, tuning));
  Reporter reporter(static_cast<int>(work.programs.size() + work.impossible.size()), progress,
                    cancelled);
  for (const PrewarmStep& step : work.impossible) reporter.Report(step);
  std::atomic<size_t> next{0};
  const auto run = [&] {
    for (size_t i = next++; i < work.programs.size() && !reporter.cancelled(); i = next++) {
      absl::StatusOr<PrewarmStep> step = CompileOne(*cache_, work.programs[i], reporter);
      if (!step.ok()) return reporter.Cancel();
      reporter.Report(*std::move(step));
    }
  };
  std::vector<std::thread> threads;
  const size_t others =
      std::min(work.programs.size(), static_cast<size_t>(jit::UsableProcessors()));
  for (size_t i = 1; i < others; ++i) threads.emplace_back(run);
  run();
  for (std::thread& thread : threads) thread.join();
  return reporter.Result();
}

StoredKernel KernelStore::Describe(const std::string& key, uint64_t bytes, bool loaded) const {
  StoredKernel stored;
  stored.key = key;
  stored.bytes = bytes;
  stored.loaded = loaded;
  const absl::StatusOr<jit::CompiledKernel> kernel = cache_->disk()->ReadFacts(key);
  if (!kernel.ok()) {
    stored.problem = std::string(kernel.status().message());
    return stored;
  }
  stored.kernel = kernel->label;
  stored.architecture = kernel->architecture;
  stored.compiler = kernel->compiler;
  stored.usage = kernel->usage;
  const auto record = jit::DecodeQuarantine(cache_->disk()->ReadQuarantine(key));
  if (record.has_value()) {
    stored.problem =
        absl::StrCat("failed its self-test under driver ", record->driver, ": ", record->why);
  }
  return stored;
}

absl::StatusOr<std::vector<StoredKernel>> KernelStore::List(const KernelFilter& filter) const {
  if (cache_->disk() == nullptr) return NoDirectory();
  std::string compiler;
  if (filter.other_compilers) {
    GEMMD_ASSIGN_OR_RETURN(compiler, cache_->Compiler());
  }
  std::vector<StoredKernel> kernels;
  for (const jit::DiskTier::Listed& entry : cache_->disk()->List()) {
    if (!absl::StartsWith(entry.key, filter.key_prefix)) continue;
    StoredKernel kernel = Describe(entry.key, entry.bytes, entry.loaded);
    if (!filter.architecture.empty() && kernel.architecture != filter.architecture) continue;
    if (filter.other_compilers && kernel.compiler == compiler) continue;
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

absl::StatusOr<VerifyResult> KernelStore::Verify() {
  GEMMD_ASSIGN_OR_RETURN(std::vector<StoredKernel> kernels, List({}));
  VerifyResult result;
  for (StoredKernel& kernel : kernels) {
    ++result.checked;
    if (!absl::IsDataLoss(cache_->disk()->Read(kernel.key).status())) continue;
    // Under the key's lock: without it another process may have replaced the entry since.
    const jit::KeyLock lock = cache_->disk()->TryLock(kernel.key);
    if (lock.state() == jit::KeyLock::State::kBusy) continue;
    const absl::Status damage = cache_->disk()->Read(kernel.key).status();
    if (!absl::IsDataLoss(damage)) continue;
    kernel.problem = std::string(damage.message());
    cache_->disk()->Drop(kernel.key);
    result.dropped.push_back(std::move(kernel));
  }
  return result;
}

absl::StatusOr<RemovedKernels> KernelStore::Purge(const KernelFilter& filter) {
  GEMMD_ASSIGN_OR_RETURN(const std::vector<StoredKernel> kernels, List(filter));
  RemovedKernels removed;
  for (const StoredKernel& kernel : kernels) {
    cache_->disk()->Drop(kernel.key);
    cache_->disk()->DropQuarantine(kernel.key);
    ++removed.entries;
    removed.bytes += kernel.bytes;
  }
  PurgeQuarantine(filter);
  cache_->ForgetFailures();
  return removed;
}

// Records whose entries are gone.
void KernelStore::PurgeQuarantine(const KernelFilter& filter) {
  const std::string compiler = filter.other_compilers ? cache_->Compiler().value_or("") : "";
  for (const std::string& key : cache_->disk()->Quarantined()) {
    const auto record = jit::DecodeQuarantine(cache_->disk()->ReadQuarantine(key));
    const bool matches =
        !record.has_value() ||
        (absl::StartsWith(key, filter.key_prefix) &&
         (filter.architecture.empty() || record->architecture == filter.architecture) &&
         (!filter.other_compilers || record->compiler != compiler));
    if (matches) cache_->disk()->DropQuarantine(key);
  }
}

absl::StatusOr<std::string> KernelStore::Export(const KernelFilter& filter) const {
  GEMMD_ASSIGN_OR_RETURN(const std::vector<StoredKernel> kernels, List(filter));
  std::vector<std::string> entries;
  for (const StoredKernel& kernel : kernels) {
    absl::StatusOr<std::string> bytes = cache_->disk()->ReadBytes(kernel.key);
    if (bytes.ok()) entries.push_back(*std::move(bytes));
  }
  return jit::EncodeBundle(entries);
}

absl::StatusOr<ImportResult> KernelStore::Import(const std::string& bundle) {
  jit::DiskTier* const disk = cache_->disk();
  if (disk == nullptr) return NoDirectory();
  GEMMD_ASSIGN_OR_RETURN(const auto entries, jit::DecodeBundle(bundle));
  const std::string compiler = cache_->Compiler().value_or("");
  ImportResult result;
  for (const auto& [key, bytes] : entries) {
    if (disk->ReadBytes(key).ok()) {
      ++result.present;
      continue;
    }
    GEMMD_RETURN_IF_ERROR(disk->WriteBytes(key, bytes));
    disk->Used(key, /*keep=*/false);
    ++result.imported;
    const auto kernel = disk->Read(key);
    if (kernel.ok() && kernel->compiler != compiler) ++result.other_compiler;
  }
  (void)disk->Evict();
  return result;
}

absl::Status KernelStore::CheckBundleStart(absl::string_view start) {
  return jit::CheckBundleStart(start);
}

void KernelStore::Close() { cache_->Close(); }

KernelStoreStats KernelStore::stats() const {
  const jit::CacheStats from = cache_->stats();
  KernelStoreStats stats;
  stats.memory_hits = from.memory_hits;
  stats.disk_hits = from.disk_hits;
  stats.compilations = from.compilations;
  stats.failed_compilations = from.failed_compilations;
  stats.dropped_entries = from.damaged_entries + from.stale_entries + from.foreign_entries;
  stats.write_failures = from.write_failures;
  stats.evicted_entries = from.evicted_entries;
  stats.disk_bytes = from.disk_bytes;
  stats.queued = from.queued;
  stats.compile_time = from.compile_time;
  stats.warning = from.warning;
  return stats;
}

int RunCompileHelper() { return jit::RunCompileHelper(); }

}  // namespace gemmd
