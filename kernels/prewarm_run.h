// What    Does what a prewarm has planned: finds every kernel in the cache or compiles it, on all processors, and
//         tells each step.
// Errors  Cancelled. After all kernels were tried: Unavailable NVRTC_MISSING (some are not in the cache, and there
//         is no compiler), Unavailable CACHE_WRITE (some did not reach the directory).
// Threads Starts its own; `progress` is called by one at a time, `cancelled` by several at once.
#ifndef GEMMD_KERNELS_PREWARM_RUN_H_
#define GEMMD_KERNELS_PREWARM_RUN_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "kernels/prewarm_work.h"

namespace gemmd {

struct PrewarmWatch {
  const std::function<bool(const PrewarmStep&)>& progress;  // false cancels
  const std::function<bool()>& cancelled;                   // may be null
};

// `sizes`: bytes of the entries that the directory has, or had, by key.
absl::Status RunPrewarm(jit::KernelCache& cache, const PrewarmWork& work, const PrewarmWatch& watch,
                        std::map<std::string, uint64_t>& sizes);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_PREWARM_RUN_H_
