// What    Compiled kernels of one node: memory first, then disk, then the compiler.
// Units   Sizes in bytes; a cubin serves exactly one architecture.
// Keys    kernel_key.h.
// Errors  DeadlineExceeded: `deadline` came first; the compilation goes on and its result is kept.
//         Cancelled: the caller said so, or the cache is closed. ResourceExhausted QUEUE_FULL.
//         Unavailable NVRTC_MISSING: not on disk, and no compiler. Internal COMPILE_FAILED, with
//         the log; the same source fails at once from then on, until the disk has its kernel. Internal
//         COMPILER_CRASHED: likewise, for five minutes. A failure that is remembered says so. A damaged, stale or foreign disk entry is no error: it is counted,
//         dropped and rebuilt. A directory that cannot be used or is full is none either: the cache
//         works from memory and says so in stats().
// Threads Every method is thread-safe. Callers asking for the same key share one compilation,
//         processes that share the directory too.
// Source  On-disk layout, eviction and locking: kernels/jit/README.md.
#ifndef GEMMD_KERNELS_JIT_KERNEL_CACHE_H_
#define GEMMD_KERNELS_JIT_KERNEL_CACHE_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/jit/cache_event.h"
#include "kernels/jit/cache_stats.h"
#include "kernels/jit/compile_backend.h"
#include "kernels/jit/compile_request.h"
#include "kernels/jit/compiler.h"
#include "kernels/jit/disk_tier.h"
#include "kernels/jit/kernel_memory.h"
#include "kernels/jit/quarantine.h"

namespace gemmd::jit {

struct KernelCacheOptions {
  std::filesystem::path directory = {};  // created with mode 0700 when missing; empty = memory only
  std::string why_no_directory = {};     // there is none, and somebody wants one: a warning
  uint64_t max_bytes = 0;                // on disk; 0 = no limit
  const NvrtcTable* nvrtc = nullptr;  // replaces this machine's, which is loaded when first needed
  // Command line of a process that calls RunCompileHelper. Empty: compile in this process.
  std::vector<std::string> helper = {};
  absl::Duration compile_limit = absl::Seconds(120);  // of one kernel, with a helper
  int workers = 0;                                    // 0 = one per processor, at most 32
  size_t max_queued = 4096;
  const FileCalls* files = &SystemFileCalls();
  CacheObserver observer = nullptr;
};

class KernelCache {
 public:
  using Answer = std::function<void(const absl::StatusOr<SharedKernel>&)>;

  static absl::StatusOr<std::unique_ptr<KernelCache>> Open(const KernelCacheOptions& options);
  static absl::StatusOr<std::unique_ptr<KernelCache>> Open(const std::filesystem::path& directory,
                                                           const NvrtcTable* nvrtc = nullptr) {
    return Open(KernelCacheOptions{.directory = directory, .nvrtc = nvrtc});
  }
  ~KernelCache();  // closes; a compilation inside this process is waited for

  // The kernel of `source`, compiled when no tier holds it. The result stays valid while the caller
  // holds it. What is asked for ahead of use (kPrewarm, kTuning) and reached the disk does not stay
  // in memory. A compilation that every caller has cancelled is dropped; when it runs, its helper
  // process is ended.
  absl::StatusOr<SharedKernel> GetOrCompile(const KernelSource& source,
                                            const CompileRequest& request);
  absl::StatusOr<SharedKernel> GetOrCompile(const KernelSource& source, absl::Time deadline) {
    return GetOrCompile(source, CompileRequest{.deadline = deadline});
  }

  // The same without a thread that waits: `answer` is called once, from another thread or before Ask
  // returns, and must not block. Forget(the result) cancels; an answer under way still comes.
  uint64_t Ask(const KernelSource& source, CompilePriority priority, Answer answer);
  void Forget(uint64_t wish);

  // The kernel, to be loaded by this process, if memory or disk has it; else null.
  SharedKernel Find(const KernelSource& source);

  // The kernel if memory or disk has it, whichever compiler made it; else null. Nothing is started, and it is not
  // counted as loaded. `on_disk`: it came from there.
  SharedKernel FindOfAnyCompiler(const KernelSource& source, bool& on_disk);

  // Whether the directory has `kernel` now; it is written when it is missing or damaged there. OK for a cache
  // that was given none. Unavailable CACHE_WRITE: it cannot be written, or used at all.
  absl::Status Store(const CompiledKernel& kernel);

  // Ends what runs and waits, with Cancelled; from now on only kernels in memory are given out.
  void Close();

  // The record of a kernel that must not run under `driver` (cuDriverGetVersion).
  std::optional<QuarantineRecord> Quarantined(const std::string& key, int driver) const;
  void Quarantine(const CompiledKernel& kernel, int driver, absl::string_view why);

  CacheStats stats() const;
  // CompilerName of the compiler in use. Unavailable NVRTC_MISSING.
  absl::StatusOr<std::string> Compiler();
  // What the last look for a compiler found; looks for none, and does not wait.
  CompilerFacts LastCompiler() const;
  // What the compiler in use compiles for: 75, 80, 90 ... Unavailable NVRTC_MISSING.
  absl::StatusOr<std::vector<int>> Architectures();
  // Before something is refused because of the compiler, which may have been replaced since it was found: starts a
  // helper process when none is alive, at most every ten seconds, and may take a second. A request that a remembered
  // failure answers does that itself, one that does not wait behind its answer.
  void LookForCompiler();
  // The next request for a kernel that failed tries again.
  void ForgetFailures();
  // Null without a directory, or with one that is not used.
  DiskTier* disk();
  // Why a directory that was given is not used, or why_no_directory; empty when it is, or nobody wants one.
  const std::string& why_no_disk() const;

  // -- what operators do to entries; needs disk() --
  absl::Status ImportEntry(const std::string& key, absl::string_view bytes);  // Unavailable CACHE_WRITE
  // Removes an entry that cannot be used, as `why` says, and counts it. Unavailable CACHE_WRITE.
  absl::Status DropEntry(const std::string& key, const absl::Status& why);
  void Evict();
  // The compilers of entries that other processes brought count at once, not within ten seconds.
  void LookAgain();

 private:
  class State;
  explicit KernelCache(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_KERNEL_CACHE_H_
