#include "kernels/kernel_store.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/jit/bundle.h"
#include "kernels/jit/compile_helper.h"
#include "kernels/jit/eviction.h"
#include "kernels/jit/kernel_cache.h"
#include "kernels/prewarm_run.h"
#include "kernels/prewarm_work.h"

namespace gemmd {
namespace {

StoredKernel WithProblem(StoredKernel kernel, const absl::Status& why) {
  kernel.problem = std::string(why.message());
  return kernel;
}

bool IsMeant(const std::string& architecture, const KernelFilter& filter) {
  return filter.architectures.empty() || filter.architectures.count(architecture) != 0;
}

// Entries whose facts cannot be read will not be in it, whatever their size.
uint64_t ExpectedBundleBytes(const std::vector<StoredKernel>& kernels) {
  uint64_t entries = 0;
  uint64_t bytes = 0;
  for (const StoredKernel& kernel : kernels) {
    if (kernel.architecture.empty()) continue;
    ++entries;
    bytes += kernel.bytes;
  }
  return jit::BundleBytes(entries, bytes);
}

// `has`: "has", or "has at least".
absl::Status BundleTooLarge(const char* has, uint64_t bytes, uint64_t bound) {
  return Error(absl::StatusCode::kInvalidArgument, "OUT_OF_RANGE",
               absl::StrCat("the bundle ", has, " ", bytes, " bytes, must have at most ", bound,
                            ": export the kernels in parts, by architecture or by the first digits of the key"));
}

}  // namespace

absl::StatusOr<std::shared_ptr<KernelStore>> KernelStore::Open(const KernelStoreOptions& options) {
  GEMMD_ASSIGN_OR_RETURN(
      std::shared_ptr<jit::KernelCache> cache,
      jit::KernelCache::Open(jit::KernelCacheOptions{.directory = options.directory,
                                                     .why_no_directory = options.why_no_directory,
                                                     .max_bytes = options.max_bytes,
                                                     .helper = options.compile_helper,
                                                     .workers = options.compile_workers,
                                                     .observer = options.observer}));
  return std::shared_ptr<KernelStore>(new KernelStore(std::move(cache), options.max_bundle_bytes));
}

absl::Status KernelStore::NoDirectory() const {
  const std::string& why = cache_->why_no_disk();
  return Error(absl::StatusCode::kFailedPrecondition, "NO_CACHE_DIRECTORY",
               absl::StrCat(why.empty() ? "the kernel cache has no directory" : why,
                            ": kernels live in memory only"));
}

absl::Status KernelStore::Prewarm(const std::vector<PrewarmLayer>& layers,
                                  const std::vector<std::string>& architectures,
                                  const std::function<bool(const PrewarmStep&)>& progress,
                                  const std::vector<RowRange>& rows,
                                  const std::function<bool()>& cancelled,
                                  const PrewarmTuning& tuning, CacheOverflow* overflow) {
  GEMMD_ASSIGN_OR_RETURN(const PrewarmWork work,
                         PlanPrewarm(*cache_, layers, architectures, rows, tuning));
  std::map<std::string, uint64_t> sizes;
  const PurgeRecord::Watch purged(purges_);
  const absl::Status status = RunPrewarm(*cache_, work, {progress, cancelled}, sizes);
  if (overflow != nullptr) *overflow = OverflowOf(sizes, purged);
  return status;
}

CacheOverflow KernelStore::OverflowOf(const std::map<std::string, uint64_t>& sizes,
                                      const PurgeRecord::Watch& purged) const {
  CacheOverflow overflow;
  if (cache_->disk() == nullptr) return overflow;
  int gone = 0;
  uint64_t gone_bytes = 0;
  for (const auto& [key, bytes] : sizes) {
    overflow.needed_bytes += bytes;
    if (cache_->disk()->Has(key)) continue;
    if (purged.Has(key)) {
      ++overflow.removed;
      continue;
    }
    ++gone;
    gone_bytes += bytes;
  }
  overflow.limit_bytes = cache_->disk()->max_bytes();
  if (gone == 0) return overflow;
  uint64_t left_bytes = 0;
  for (const jit::DiskTier::Listed& entry : cache_->disk()->List()) left_bytes += entry.bytes;
  (jit::MayBeEvicted(gone_bytes, left_bytes, overflow.limit_bytes) ? overflow.entries : overflow.removed) += gone;
  return overflow;
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
  GEMMD_RETURN_IF_ERROR(cache_->disk()->CheckListable());
  std::string compiler;
  if (filter.other_compilers) {
    GEMMD_ASSIGN_OR_RETURN(compiler, cache_->Compiler());
  }
  std::vector<StoredKernel> kernels;
  for (const jit::DiskTier::Listed& entry : cache_->disk()->List()) {
    if (!absl::StartsWith(entry.key, filter.key_prefix)) continue;
    StoredKernel kernel = Describe(entry.key, entry.bytes, entry.loaded);
    if (!IsMeant(kernel.architecture, filter)) continue;
    if (filter.other_compilers && kernel.compiler == compiler) continue;
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

absl::StatusOr<VerifyResult> KernelStore::Verify() {
  GEMMD_ASSIGN_OR_RETURN(std::vector<StoredKernel> kernels, List({}));
  VerifyResult result;
  for (StoredKernel& kernel : kernels) Check(std::move(kernel), result);
  return result;
}

void KernelStore::Check(StoredKernel kernel, VerifyResult& result) {
  jit::DiskTier& disk = *cache_->disk();
  absl::Status status = disk.Read(kernel.key).status();
  if (absl::IsNotFound(status)) return;  // gone meanwhile
  ++result.checked;
  if (absl::IsUnavailable(status)) {
    return result.unreadable.push_back(WithProblem(std::move(kernel), status));
  }
  if (!absl::IsDataLoss(status)) return;
  // Under the key's lock: without it another process may have replaced the entry since.
  const jit::KeyLock lock = disk.TryLock(kernel.key);
  if (lock.state() == jit::KeyLock::State::kBusy) return;
  status = disk.Read(kernel.key).status();
  if (!absl::IsDataLoss(status)) return;
  const absl::Status dropped = cache_->DropEntry(kernel.key, status);
  kernel.problem = std::string(status.message());
  if (!dropped.ok()) absl::StrAppend(&kernel.problem, "; ", dropped.message());
  (dropped.ok() ? result.dropped : result.kept).push_back(std::move(kernel));
}

absl::StatusOr<RemovedKernels> KernelStore::Purge(const KernelFilter& filter) {
  absl::StatusOr<std::vector<StoredKernel>> kernels = List(filter);
  if (!kernels.ok()) {
    cache_->ForgetFailures();  // they are in memory
    return kernels.status();
  }
  RemovedKernels removed;
  for (StoredKernel& kernel : *kernels) {
    purges_.Add(kernel.key);  // before somebody can miss it
    absl::Status status = cache_->disk()->Drop(kernel.key);
    if (status.ok()) status = cache_->disk()->DropQuarantine(kernel.key);
    if (!status.ok()) {
      removed.kept.push_back(WithProblem(std::move(kernel), status));
      continue;
    }
    ++removed.entries;
    removed.bytes += kernel.bytes;
  }
  PurgeQuarantine(filter, removed);
  cache_->ForgetFailures();
  return removed;
}

// Records whose entries are gone.
void KernelStore::PurgeQuarantine(const KernelFilter& filter, RemovedKernels& removed) {
  const std::string compiler = filter.other_compilers ? cache_->Compiler().value_or("") : "";
  for (const std::string& key : cache_->disk()->Quarantined()) {
    if (cache_->disk()->Has(key)) continue;  // told already
    const auto record = jit::DecodeQuarantine(cache_->disk()->ReadQuarantine(key));
    const bool matches =
        !record.has_value() ||
        (absl::StartsWith(key, filter.key_prefix) &&
         IsMeant(record->architecture, filter) &&
         (!filter.other_compilers || record->compiler != compiler));
    if (!matches) continue;
    const absl::Status status = cache_->disk()->DropQuarantine(key);
    if (!status.ok()) removed.kept.push_back(WithProblem({.key = key}, status));
  }
}

absl::StatusOr<ExportedKernels> KernelStore::Export(const KernelFilter& filter) const {
  GEMMD_ASSIGN_OR_RETURN(std::vector<StoredKernel> kernels, List(filter));
  const uint64_t expected = ExpectedBundleBytes(kernels);
  if (expected > max_bundle_bytes_) return BundleTooLarge("has", expected, max_bundle_bytes_);
  ExportedKernels exported;
  jit::BundleWriter writer(expected);
  for (StoredKernel& kernel : kernels) {
    const absl::StatusOr<std::string> bytes = cache_->disk()->ReadBytes(kernel.key);
    if (!bytes.ok()) {
      exported.skipped.push_back(WithProblem(std::move(kernel), bytes.status()));
      continue;
    }
    writer.Add(*bytes);
    // An entry was written anew since it was listed.
    if (writer.bytes() > max_bundle_bytes_) {
      return BundleTooLarge("has at least", writer.bytes(), max_bundle_bytes_);
    }
  }
  exported.entries = static_cast<int>(writer.entries());
  exported.bundle = std::move(writer).Finish();
  return exported;
}

absl::StatusOr<ImportResult> KernelStore::Import(const std::string& bundle) {
  const jit::DiskTier* const disk = cache_->disk();
  if (disk == nullptr) return NoDirectory();
  GEMMD_RETURN_IF_ERROR(CheckBundleStart(bundle));
  GEMMD_ASSIGN_OR_RETURN(const auto entries, jit::DecodeBundle(bundle));
  const std::string compiler = cache_->Compiler().value_or("");
  ImportResult result;
  const PurgeRecord::Watch purged(purges_);
  std::map<std::string, uint64_t> sizes;
  for (const auto& [key, bytes] : entries) {
    sizes[key] = bytes.size();
    if (disk->ReadBytes(key).ok()) {
      ++result.present;
      continue;
    }
    GEMMD_RETURN_IF_ERROR(cache_->ImportEntry(key, bytes));
    ++result.imported;
    const auto kernel = disk->Read(key);
    if (kernel.ok() && kernel->compiler != compiler) ++result.other_compiler;
  }
  cache_->Evict();
  result.overflow = OverflowOf(sizes, purged);
  return result;
}

absl::Status KernelStore::CheckBundleStart(absl::string_view start) const {
  if (start.size() > max_bundle_bytes_) return BundleTooLarge("has at least", start.size(), max_bundle_bytes_);
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
  stats.compiler_deaths = from.compiler_deaths;
  stats.damaged_entries = from.damaged_entries;
  stats.stale_entries = from.stale_entries;
  stats.foreign_entries = from.foreign_entries;
  stats.write_failures = from.write_failures;
  stats.evicted_entries = from.evicted_entries;
  stats.disk_bytes = from.disk_bytes;
  stats.queued = from.queued;
  stats.compile_time = from.compile_time;
  stats.warning = from.warning;
  return stats;
}

std::string KernelStore::warning() const {
  return cache_->disk() == nullptr ? cache_->why_no_disk() : cache_->disk()->warning();
}

bool KernelStore::in_memory_only() const { return cache_->disk() == nullptr; }

StoreCompiler KernelStore::FindCompiler() {
  if (absl::IsCancelled(cache_->Compiler().status())) return {};
  return compiler();
}

StoreCompiler KernelStore::compiler() const {
  jit::CompilerFacts facts = cache_->LastCompiler();
  return {std::move(facts.name), std::move(facts.path), std::move(facts.problem)};
}

int RunCompileHelper() { return jit::RunCompileHelper(); }

}  // namespace gemmd
