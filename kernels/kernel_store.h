// What    The node's kernel cache as operators see it: fill it ahead of use, look at it, check it,
//         carry it elsewhere. Works without a GPU and without a driver.
//           auto store = KernelStore::Open({.directory = directory});   // one per node
//           GpuKernels kernels(driver, "sm_90a", store->cache());
// Errors  Prewarm: InvalidArgument BAD_ARCHITECTURE (prewarm_target.h: nothing is compiled), Cancelled (by
//         `progress`, or the store is closed). After all kernels were tried:
//         Unavailable NVRTC_MISSING (some are not in the cache, and nothing can compile them),
//         Unavailable CACHE_WRITE (the directory lacks some). A layer or kernel that cannot be built is no
//         error: its step says so. FailedPrecondition NO_CACHE_DIRECTORY: the cache lives in memory only;
//         the message says why a directory that was given is not used. List, Verify, Purge, Export: Unavailable
//         CACHE_READ: the directory is gone, or cannot be listed now. Export: InvalidArgument OUT_OF_RANGE: the
//         bundle would be larger than max_bundle_bytes. Import: the same (nothing is taken), DataLoss BUNDLE_DAMAGED
//         (nothing is taken), Unavailable CACHE_WRITE.
// Threads Every method is thread-safe. Prewarm, Verify, Export and Import take seconds. List reads the
//         front of each entry only: Verify finds damage behind it.
#ifndef GEMMD_KERNELS_KERNEL_STORE_H_
#define GEMMD_KERNELS_KERNEL_STORE_H_

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/base/bundle_bound.h"
#include "kernels/contract/layer_traits.h"
#include "kernels/contract/quant_spec.h"
#include "kernels/jit/cache_event.h"
#include "kernels/purge_record.h"
#include "kernels/row_range.h"

namespace gemmd {

namespace jit {
class KernelCache;
}
class TuningStore;
using jit::CacheEvent;
using jit::CacheObserver;

struct KernelStoreOptions {
  std::filesystem::path directory = {};  // empty = memory only
  std::string why_no_directory = {};     // there is none, and somebody wants one: a warning
  uint64_t max_bytes = 0;                // on disk; 0 = no limit
  // Command line of a process that calls RunCompileHelper. Empty: compile in this process.
  std::vector<std::string> compile_helper = {};
  int compile_workers = 0;  // compilations at a time; 0 = one per processor, at most 32
  uint64_t max_bundle_bytes = kMaxBundleBytes;  // that Export makes and Import takes
  CacheObserver observer = nullptr;
};

// NVRTC, as far as somebody has looked for it: `problem` says why there is none.
struct StoreCompiler {
  std::string name;  // version and build: "13.0 65be0db3..."; empty: none, or nobody has looked
  std::string path;
  std::string problem;
};

struct PrewarmLayer {
  QuantSpec spec;
  LayerShape shape;
  LayerTraits traits = {};
  friend bool operator==(const PrewarmLayer&, const PrewarmLayer&) = default;
};

// A GPU that layers will be loaded on.
struct PrewarmGpu {
  std::string architecture;
  std::string name;  // "NVIDIA H200"
  int multiprocessors = 0;
};

// What was measured of kernels decides which ones a GPU loads. For an architecture of which `gpus` has none the kernels
// are those of any GPU, where something was measured and where nothing was.
struct PrewarmTuning {
  std::shared_ptr<const TuningStore> store = nullptr;  // null: nothing was measured
  std::vector<PrewarmGpu> gpus = {};                   // the node's
};

// kNotStored: there is a kernel, but the cache's directory did not take it.
enum class PrewarmOutcome : uint8_t { kCached, kCompiled, kFailed, kNoKernel, kNotStored };

// One kernel of a prewarm that is done, or (kNoKernel) one layer that has none.
struct PrewarmStep {
  int done = 0;
  int total = 0;
  std::string kernel;
  std::string architecture;
  PrewarmOutcome outcome = PrewarmOutcome::kCached;
  std::string message;  // of kFailed, kNoKernel and kNotStored
  absl::Duration took;
};

struct StoredKernel {
  std::string key;
  std::string kernel;  // its name
  std::string architecture;
  std::string compiler;
  std::string usage;  // registers, stack, spills, shared memory, as the compiler tells
  uint64_t bytes = 0;
  bool loaded = false;  // by a living process of this node
  // Why the kernel cannot be used: its entry is damaged, or it failed its self-test. Empty = fine.
  std::string problem;
};

// Entries that match all that is given.
struct KernelFilter {
  std::string key_prefix = {};
  std::set<std::string> architectures = {};  // one of these; empty: any
  bool other_compilers = false;  // only those that this machine's compiler did not make
};

// Of each kernel listed, `problem` says what is wrong.
struct VerifyResult {
  int checked = 0;
  std::vector<StoredKernel> dropped;
  std::vector<StoredKernel> unreadable;  // may be good: the file cannot be read now, and stays
  std::vector<StoredKernel> kept;        // damaged, and could not be removed
};

struct RemovedKernels {
  int entries = 0;
  uint64_t bytes = 0;
  std::vector<StoredKernel> kept;  // could not be removed; `problem` says why
};

struct ExportedKernels {
  std::string bundle;
  int entries = 0;
  std::vector<StoredKernel> skipped;  // damaged or unreadable; `problem` says why
};

// Kernels that came into the directory and went again, because it may not hold so many bytes, or somebody removed them.
struct CacheOverflow {
  int entries = 0;            // that were evicted
  int removed = 0;            // that were purged meanwhile, or removed by another process
  uint64_t needed_bytes = 0;  // of all that came, or were there already
  uint64_t limit_bytes = 0;
};

struct ImportResult {
  int imported = 0;
  int present = 0;         // were there already
  int other_compiler = 0;  // of these, made by another compiler: used only where there is none
  CacheOverflow overflow;
};

struct KernelStoreStats {
  uint64_t memory_hits = 0;
  uint64_t disk_hits = 0;
  uint64_t compilations = 0;
  uint64_t failed_compilations = 0;
  uint64_t compiler_deaths = 0;  // of these: the compiler died, or took too long and was ended
  uint64_t damaged_entries = 0;  // dropped from disk, like the next two
  uint64_t stale_entries = 0;    // of another schema
  uint64_t foreign_entries = 0;  // of another architecture or compiler
  uint64_t write_failures = 0;
  uint64_t evicted_entries = 0;
  uint64_t disk_bytes = 0;
  uint64_t queued = 0;
  absl::Duration compile_time;
  std::string warning;  // what is wrong with the directory, or why it is not used
};

class KernelStore {
 public:
  static absl::StatusOr<std::shared_ptr<KernelStore>> Open(const KernelStoreOptions& options);

  const std::shared_ptr<jit::KernelCache>& cache() const { return cache_; }

  // Compiles every kernel that the layers need on the architectures for requests of `rows` rows
  // (empty: of any number), behind whatever clients wait for. `progress` is called from several
  // threads, one at a time; false cancels. `cancelled`, if any, is asked now and then, also while
  // kernels compile, from several threads at once; true cancels. Without a compiler it finds what the directory
  // has. `overflow`, if any, tells what did not stay.
  absl::Status Prewarm(const std::vector<PrewarmLayer>& layers,
                       const std::vector<std::string>& architectures,
                       const std::function<bool(const PrewarmStep&)>& progress,
                       const std::vector<RowRange>& rows = {},
                       const std::function<bool()>& cancelled = nullptr,
                       const PrewarmTuning& tuning = {}, CacheOverflow* overflow = nullptr);

  // Most recently used first.
  absl::StatusOr<std::vector<StoredKernel>> List(const KernelFilter& filter) const;
  // Reads every entry and drops what is damaged or of another schema.
  absl::StatusOr<VerifyResult> Verify();
  // Kernels that failed, to compile or in their self-test, get another chance; the former also when nothing can be
  // listed.
  absl::StatusOr<RemovedKernels> Purge(const KernelFilter& filter);
  // What is whole; an entry that is not stays where it is. Memory: the bundle once, and its largest entry. One that
  // is too large is refused before any entry is read whole.
  absl::StatusOr<ExportedKernels> Export(const KernelFilter& filter) const;
  absl::StatusOr<ImportResult> Import(const std::string& bundle);
  // Whether these first bytes, however few, can be those of a bundle that Import takes. DataLoss BUNDLE_DAMAGED;
  // InvalidArgument OUT_OF_RANGE.
  absl::Status CheckBundleStart(absl::string_view start) const;

  // Ends compilations and whoever waits for them, with Cancelled. Kernels in memory stay.
  void Close();

  KernelStoreStats stats() const;
  // Looks for the compiler, which loads it: it may take a second. Cancelled by Close: no problem then.
  StoreCompiler FindCompiler();
  // These touch no disk. warning: as in stats(). in_memory_only: there is no directory, or it is not used.
  std::string warning() const;
  bool in_memory_only() const;
  StoreCompiler compiler() const;  // what was found last, whoever looked

 private:
  KernelStore(std::shared_ptr<jit::KernelCache> cache, uint64_t max_bundle_bytes)
      : cache_(std::move(cache)), max_bundle_bytes_(max_bundle_bytes) {}
  StoredKernel Describe(const std::string& key, uint64_t bytes, bool loaded) const;
  absl::Status NoDirectory() const;
  void Check(StoredKernel kernel, VerifyResult& result);
  void PurgeQuarantine(const KernelFilter& filter, RemovedKernels& removed);
  CacheOverflow OverflowOf(const std::map<std::string, uint64_t>& sizes, const PurgeRecord::Watch& purged) const;

  PurgeRecord purges_;
  const std::shared_ptr<jit::KernelCache> cache_;
  const uint64_t max_bundle_bytes_;
};

// Body of a process that compiles for its parent. Returns its exit code.
int RunCompileHelper();

}  // namespace gemmd

#endif  // GEMMD_KERNELS_KERNEL_STORE_H_
