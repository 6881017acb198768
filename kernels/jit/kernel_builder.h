// What    A worker's part of a request: one kernel that memory has not, from the disk or from the
//         compiler, between processes that share the directory.
//           key lock ──▶ disk? ──▶ compile ──▶ write ──▶ lock given back
//             └─held by another process: its entry, as soon as it is there
// Errors  As CompileBackend::Compile. Cancelled: `unwanted` became true.
// Threads Every method is thread-safe; Build takes seconds.
#ifndef GEMMD_KERNELS_JIT_KERNEL_BUILDER_H_
#define GEMMD_KERNELS_JIT_KERNEL_BUILDER_H_

#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/base/mutex.h"
#include "kernels/jit/cache_event.h"
#include "kernels/jit/cache_stats.h"
#include "kernels/jit/compile_backend.h"
#include "kernels/jit/compile_request.h"
#include "kernels/jit/compiler.h"
#include "kernels/jit/kernel_tiers.h"
#include "kernels/jit/key_lock.h"

namespace gemmd::jit {

// What is built, and for whom. The referents outlive the call.
struct BuildOrder {
  const KernelSource& source;
  const std::string& compiler;
  const std::string& key;
  const std::atomic<bool>& unwanted;
};

struct Built {
  absl::StatusOr<CompiledKernel> kernel;
  bool stored = false;  // the disk has it now
  KernelOrigin origin = KernelOrigin::kCompiled;
};

class KernelBuilder {
 public:
  // `observer`, which may be null, is told of each compiler that dies.
  KernelBuilder(KernelTiers& tiers, CompileBackend& backend, CacheObserver observer)
      : tiers_(tiers), backend_(backend), observer_(std::move(observer)) {}

  Built Build(const BuildOrder& order);
  void AddTo(CacheStats& stats) const;

 private:
  std::optional<CompiledKernel> AwaitLock(const BuildOrder& order, std::optional<KeyLock>& lock);
  absl::StatusOr<CompiledKernel> Compile(const BuildOrder& order);
  void Count(const absl::Status& result, absl::Duration took);

  KernelTiers& tiers_;
  CompileBackend& backend_;
  const CacheObserver observer_;
  mutable Mutex mutex_;
  CacheStats counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_KERNEL_BUILDER_H_
