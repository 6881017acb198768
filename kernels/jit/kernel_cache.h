// What    Compiled kernels of one node: memory first, then disk, then the compiler.
// Units   Sizes in bytes; a cubin serves exactly one architecture.
// Keys    KernelKey (compiler.h).
// Errors  DeadlineExceeded: `deadline` came first; the compilation goes on and its result is kept.
//         Unavailable NVRTC_MISSING: not on disk, and no compiler. Internal COMPILE_FAILED, with
//         the log; the same source fails at once from then on. A damaged disk entry is no error: it
//         is counted, dropped and rebuilt. A directory that cannot be used is none either: the
//         cache works from memory and says so in stats().
// Threads Every method is thread-safe. Callers asking for the same key share one compilation,
//         processes that share the directory too.
// Source  On-disk layout and locking: kernels/jit/README.md.
#ifndef GEMMD_KERNELS_JIT_KERNEL_CACHE_H_
#define GEMMD_KERNELS_JIT_KERNEL_CACHE_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/jit/compiler.h"

namespace gemmd::jit {

struct CacheStats {
  uint64_t memory_hits = 0;
  uint64_t disk_hits = 0;
  uint64_t compilations = 0;  // finished well
  uint64_t failed_compilations = 0;
  uint64_t shared_waits = 0;     // calls that waited for another caller's result
  uint64_t damaged_entries = 0;  // dropped from disk: short, changed, or of another key
  uint64_t write_failures = 0;   // results that did not reach the disk
  absl::Duration compile_time;   // sum over compilations
  std::string warning;           // why the directory is not used, or the last failure to write
};

class KernelCache {
 public:
  // An empty `directory` keeps kernels in memory only. Created with mode 0700 when missing. `nvrtc`
  // replaces the compiler of this machine, which is else loaded when it is first needed.
  static absl::StatusOr<std::unique_ptr<KernelCache>> Open(const std::filesystem::path& directory,
                                                           const NvrtcTable* nvrtc = nullptr);
  ~KernelCache();  // waits for running compilations

  // The kernel of `source`, compiled when no tier holds it. The result stays valid while the caller
  // holds it.
  absl::StatusOr<std::shared_ptr<const CompiledKernel>> GetOrCompile(const KernelSource& source,
                                                                     absl::Time deadline);
  CacheStats stats() const;

 private:
  class State;
  explicit KernelCache(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_KERNEL_CACHE_H_
