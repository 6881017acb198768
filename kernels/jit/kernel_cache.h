// What    Compiled kernels of one node: memory first, then disk, then the compiler.
// Units   Sizes in bytes; a cubin serves exactly one architecture.
// Keys    kernel_key.h.
// Errors  DeadlineExceeded: `deadline` came first; the compilation goes on and its result is kept.
//         Cancelled: the caller said so, or the cache is closing. ResourceExhausted QUEUE_FULL.
//         Unavailable NVRTC_MISSING: not on disk, and no compiler. Internal COMPILE_FAILED, with
//         the log; the same source fails at once from then on. Internal COMPILER_CRASHED: likewise,
//         for five minutes. A damaged, stale or foreign disk entry is no error: it is counted,
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
#include "kernels/jit/compile_queue.h"
#include "kernels/jit/compiler.h"
#include "kernels/jit/disk_tier.h"

namespace gemmd::jit {

struct KernelCacheOptions {
  std::filesystem::path directory = {};  // created with mode 0700 when missing; empty = memory only
  uint64_t max_bytes = 0;                // on disk; 0 = no limit
  const NvrtcTable* nvrtc = nullptr;  // replaces this machine's, which is loaded when first needed
  // Command line of a process that calls RunCompileHelper. Empty: compile in this process.
  std::vector<std::string> helper = {};
  absl::Duration compile_limit = absl::Seconds(120);  // of one kernel, with a helper
  int workers = 0;                                    // 0 = one per processor, at most 32
  size_t max_queued = 4096;
  const FileCalls* files = &SystemFileCalls();
};

struct CacheStats {
  uint64_t memory_hits = 0;
  uint64_t disk_hits = 0;
  uint64_t compilations = 0;  // finished well
  uint64_t failed_compilations = 0;
  uint64_t shared_waits = 0;     // calls that waited for another caller's result
  uint64_t damaged_entries = 0;  // dropped from disk: short, changed, or of another key
  uint64_t stale_entries = 0;    // dropped from disk: of another schema
  uint64_t foreign_entries = 0;  // dropped from disk: of another architecture or compiler
  uint64_t write_failures = 0;   // results that did not reach the disk
  uint64_t cancelled = 0;        // compilations that nobody waited for any more
  uint64_t evicted_entries = 0;
  uint64_t evicted_bytes = 0;
  uint64_t disk_bytes = 0;
  uint64_t queued = 0;          // compilations waiting for a worker
  uint64_t running = 0;         // jobs on the workers
  absl::Duration compile_time;  // sum over compilations
  std::string warning;          // what is wrong with the directory, or the last failure to write
};

enum class KernelOrigin : uint8_t { kMemory, kDisk, kCompiled };

struct CompileRequest {
  absl::Time deadline = absl::InfiniteFuture();
  CompilePriority priority = CompilePriority::kClient;
  // Asked now and then while the call waits. A compilation that has not started and that nobody else
  // waits for is then dropped.
  std::function<bool()> cancelled = nullptr;
  KernelOrigin* origin = nullptr;  // where the kernel came from
};

class KernelCache {
 public:
  static absl::StatusOr<std::unique_ptr<KernelCache>> Open(const KernelCacheOptions& options);
  static absl::StatusOr<std::unique_ptr<KernelCache>> Open(const std::filesystem::path& directory,
                                                           const NvrtcTable* nvrtc = nullptr) {
    return Open(KernelCacheOptions{.directory = directory, .nvrtc = nvrtc});
  }
  ~KernelCache();  // waits for running compilations, drops waiting ones

  // The kernel of `source`, compiled when no tier holds it. The result stays valid while the caller
  // holds it. What is asked for with a lower priority than kClient and reached the disk does not stay
  // in memory.
  absl::StatusOr<std::shared_ptr<const CompiledKernel>> GetOrCompile(const KernelSource& source,
                                                                     const CompileRequest& request);
  absl::StatusOr<std::shared_ptr<const CompiledKernel>> GetOrCompile(const KernelSource& source,
                                                                     absl::Time deadline) {
    return GetOrCompile(source, CompileRequest{.deadline = deadline});
  }

  CacheStats stats() const;
  // CompilerName of the compiler in use. Unavailable NVRTC_MISSING.
  absl::StatusOr<std::string> Compiler();
  // The next request for a kernel that failed tries again.
  void ForgetFailures();
  // Null without a directory.
  DiskTier* disk();

 private:
  class State;
  explicit KernelCache(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_KERNEL_CACHE_H_
