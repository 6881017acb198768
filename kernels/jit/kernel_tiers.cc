#include "kernels/jit/kernel_tiers.h"

#include <utility>

#include "absl/time/clock.h"
#include "kernels/base/status.h"
#include "kernels/jit/cache_entry.h"

namespace gemmd::jit {
namespace {

constexpr absl::Duration kScanPause = absl::Seconds(10);

}  // namespace

KernelTiers::KernelTiers(std::unique_ptr<DiskTier> disk, std::string why_no_disk,
                         CacheObserver observer)
    : disk_(std::move(disk)),
      why_no_disk_(std::move(why_no_disk)),
      observer_(std::move(observer)),
      quarantine_(disk_.get()) {}

SharedKernel KernelTiers::FindInMemory(const KernelSource& source) {
  MutexLock lock(mutex_);
  SharedKernel kernel = memory_.Find(source);
  if (kernel != nullptr) ++counts_.memory_hits;
  return kernel;
}

std::optional<CompiledKernel> KernelTiers::ReadDisk(const KernelSource& source,
                                                    const std::string& compiler,
                                                    const std::string& key, bool drop) {
  if (disk_ == nullptr) return std::nullopt;
  absl::StatusOr<CompiledKernel> kernel = disk_->Read(key);
  absl::Status status = kernel.status();
  if (status.ok()) status = CheckOrigin(*kernel, source.architecture, compiler);
  if (status.ok()) {
    MutexLock lock(mutex_);
    ++counts_.disk_hits;
    return *std::move(kernel);
  }
  if (drop && absl::IsDataLoss(status)) {
    (void)disk_->Drop(key);  // what stays is written over
    Dropped(key, source.label, status);
  }
  return std::nullopt;
}

std::optional<CompiledKernel> KernelTiers::ReadDiskOfAnyCompiler(const KernelSource& source) {
  for (const std::string& compiler : RecordedCompilers()) {
    auto kernel = ReadDisk(source, compiler, KernelKey(source, compiler), /*drop=*/false);
    if (kernel.has_value()) return kernel;
  }
  return std::nullopt;
}

std::set<std::string> KernelTiers::RecordedCompilers() {
  if (disk_ == nullptr) return {};
  MutexLock scan(scan_mutex_);
  {
    MutexLock lock(mutex_);
    if (absl::Now() < next_scan_) return recorded_compilers_;
    next_scan_ = absl::Now() + kScanPause;
  }
  std::set<std::string> compilers;
  for (const DiskTier::Listed& entry : disk_->List()) {
    const auto kernel = disk_->ReadFacts(entry.key);
    if (kernel.ok()) compilers.insert(kernel->compiler);
  }
  MutexLock lock(mutex_);
  recorded_compilers_ = compilers;
  return compilers;
}

void KernelTiers::Dropped(const std::string& key, const std::string& label,
                          const absl::Status& why) {
  const std::string problem = ProblemOf(why);
  {
    MutexLock lock(mutex_);
    ++(problem == "stale"     ? counts_.stale_entries
       : problem == "foreign" ? counts_.foreign_entries
                              : counts_.damaged_entries);
  }
  if (observer_) observer_({CacheEvent::Kind::kEntryDropped, key, label, problem, why});
}

bool KernelTiers::Write(const CompiledKernel& kernel) {
  if (disk_ == nullptr) return false;
  if (disk_->Write(kernel).ok()) return true;
  MutexLock lock(mutex_);
  ++counts_.write_failures;
  return false;
}

absl::Status KernelTiers::Store(const CompiledKernel& kernel) {
  if (disk_ == nullptr) {
    if (why_no_disk_.empty()) return absl::OkStatus();
    return Error(absl::StatusCode::kUnavailable, "CACHE_WRITE", why_no_disk_);
  }
  if (disk_->ReadBytes(kernel.key).ok()) return absl::OkStatus();
  GEMMD_RETURN_IF_ERROR(disk_->Write(kernel));
  disk_->Used(kernel.key, /*keep=*/false);
  Evict();
  return absl::OkStatus();
}

absl::Status KernelTiers::Import(const std::string& key, absl::string_view bytes) {
  GEMMD_RETURN_IF_ERROR(disk_->WriteBytes(key, bytes));
  disk_->Used(key, /*keep=*/false);
  MutexLock lock(mutex_);
  memory_.ForgetFailure(key);
  next_scan_ = absl::InfinitePast();  // its compiler may be new here
  return absl::OkStatus();
}

void KernelTiers::LookAgain() {
  MutexLock lock(mutex_);
  next_scan_ = absl::InfinitePast();
}

absl::Status KernelTiers::Drop(const std::string& key, const absl::Status& why) {
  GEMMD_RETURN_IF_ERROR(disk_->Drop(key));
  Dropped(key, /*label=*/"", why);
  return absl::OkStatus();
}

void KernelTiers::Evict() {
  const DiskTier::Eviction eviction = disk_->Evict();
  MutexLock lock(mutex_);
  counts_.evicted_entries += eviction.entries;
  counts_.evicted_bytes += eviction.bytes;
}

SharedKernel KernelTiers::Keep(const KernelSource& source, CompiledKernel kernel, bool on_disk,
                               bool loads) {
  auto shared = std::make_shared<const CompiledKernel>(std::move(kernel));
  if (on_disk) {
    disk_->Used(shared->key, loads);
    Evict();
  }
  MutexLock lock(mutex_);
  memory_.ForgetFailure(shared->key);
  if (loads || !on_disk) memory_.Keep(source, shared);
  return shared;
}

absl::Status KernelTiers::FailureOf(const std::string& key) {
  absl::Status failure;
  {
    MutexLock lock(mutex_);
    failure = memory_.FailureOf(key, absl::Now());
  }
  const bool is_there = !failure.ok() && disk_ != nullptr && disk_->ReadFacts(key).ok();
  return is_there ? absl::OkStatus() : failure;
}

void KernelTiers::RememberFailure(const std::string& key, const absl::Status& status) {
  MutexLock lock(mutex_);
  memory_.RememberFailure(key, status, absl::Now());
}

void KernelTiers::Forget() {
  quarantine_.ForgetMemory();
  MutexLock lock(mutex_);
  memory_.ForgetFailures();
}

void KernelTiers::AddTo(CacheStats& stats) const {
  stats.warning = disk_ == nullptr ? why_no_disk_ : disk_->warning();
  stats.disk_bytes = disk_ == nullptr ? 0 : disk_->bytes();
  MutexLock lock(mutex_);
  stats.memory_hits += counts_.memory_hits;
  stats.disk_hits += counts_.disk_hits;
  stats.damaged_entries += counts_.damaged_entries;
  stats.stale_entries += counts_.stale_entries;
  stats.foreign_entries += counts_.foreign_entries;
  stats.write_failures += counts_.write_failures;
  stats.evicted_entries += counts_.evicted_entries;
  stats.evicted_bytes += counts_.evicted_bytes;
}

}  // namespace gemmd::jit
