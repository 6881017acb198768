// What    Where finished kernels are kept, memory and then disk, and what is remembered of those
//         that failed. KernelCache decides when to ask which.
// Counts  Hits, dropped entries, evictions and failed writes. The observer is told of each entry that is dropped.
// Threads Every method is thread-safe; none of them compiles or waits.
#ifndef GEMMD_KERNELS_JIT_KERNEL_TIERS_H_
#define GEMMD_KERNELS_JIT_KERNEL_TIERS_H_

#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "kernels/base/mutex.h"
#include "kernels/jit/cache_event.h"
#include "kernels/jit/cache_stats.h"
#include "kernels/jit/disk_tier.h"
#include "kernels/jit/kernel_memory.h"
#include "kernels/jit/quarantine.h"

namespace gemmd::jit {

class KernelTiers {
 public:
  // `disk` null: memory only. `why_no_disk`: why there is none although somebody asked for it.
  // `observer` may be null.
  KernelTiers(std::unique_ptr<DiskTier> disk, std::string why_no_disk, CacheObserver observer);

  DiskTier* disk() const { return disk_.get(); }
  const std::string& why_no_disk() const { return why_no_disk_; }
  Quarantine& quarantine() { return quarantine_; }

  SharedKernel FindInMemory(const KernelSource& source);  // or null
  // The entry of `key`, when it is what `source` and `compiler` ask for. With `drop` one that is not
  // is removed and counted; the caller then holds the key's lock.
  std::optional<CompiledKernel> ReadDisk(const KernelSource& source, const std::string& compiler,
                                         const std::string& key, bool drop);
  // The entry of whichever compiler filled the directory: without a compiler one is as good as
  // another.
  std::optional<CompiledKernel> ReadDiskOfAnyCompiler(const KernelSource& source);

  // Whether the disk has the kernel now.
  bool Write(const CompiledKernel& kernel);
  // The disk has the kernel afterwards. OK without a disk that somebody asked for, else Unavailable
  // CACHE_WRITE. Counts nothing: a result that did not reach the disk was counted by Write.
  absl::Status Store(const CompiledKernel& kernel);
  // An entry that another machine made; counts as used, and its key's failure is forgotten.
  absl::Status Import(const std::string& key, absl::string_view bytes);
  // Removes the entry, which cannot be used for the reason of `why`, and counts it. Unavailable CACHE_WRITE.
  absl::Status Drop(const std::string& key, const absl::Status& why);
  void LookAgain();  // for compilers of entries
  // Removes least recently used entries when the limit is passed.
  void Evict();
  // `on_disk`: the disk has it. `loads`: this process loads it. It stays in memory when it is loaded,
  // or nowhere else.
  SharedKernel Keep(const KernelSource& source, CompiledKernel kernel, bool on_disk, bool loads);

  // OK, or the failure of `key` that is remembered (kernel_memory.h). What the disk has is none: another process
  // published it, or an import brought it. Reads the front of such an entry.
  absl::Status FailureOf(const std::string& key);
  void RememberFailure(const std::string& key, const absl::Status& status);
  // Failures and quarantine, as far as memory goes.
  void Forget();

  void AddTo(CacheStats& stats) const;

 private:
  std::set<std::string> RecordedCompilers();
  void Dropped(const std::string& key, const std::string& label, const absl::Status& why);

  const std::unique_ptr<DiskTier> disk_;
  const std::string why_no_disk_;
  const CacheObserver observer_;
  Quarantine quarantine_;
  Mutex scan_mutex_;  // before mutex_: whoever comes during a scan waits for what it finds
  mutable Mutex mutex_;
  KernelMemory memory_ ABSL_GUARDED_BY(mutex_);
  CacheStats counts_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> recorded_compilers_ ABSL_GUARDED_BY(mutex_);
  absl::Time next_scan_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_KERNEL_TIERS_H_
