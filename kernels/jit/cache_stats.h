// What    What a kernel cache has done since it was opened.
#ifndef GEMMD_KERNELS_JIT_CACHE_STATS_H_
#define GEMMD_KERNELS_JIT_CACHE_STATS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace gemmd::jit {

struct CacheStats {
  uint64_t memory_hits = 0;
  uint64_t disk_hits = 0;
  uint64_t compilations = 0;  // finished well
  uint64_t failed_compilations = 0;
  uint64_t compiler_deaths = 0;  // of these: the helper died, or was ended at its limit
  uint64_t shared_waits = 0;     // calls that waited for another caller's result
  uint64_t damaged_entries = 0;  // dropped from disk: short, changed, or of another key
  uint64_t stale_entries = 0;    // dropped from disk: of another schema
  uint64_t foreign_entries = 0;  // dropped from disk: of another architecture or compiler
  uint64_t write_failures = 0;   // results that did not reach the disk
  uint64_t cancelled = 0;        // compilations dropped or stopped: nobody waited for them any more
  uint64_t evicted_entries = 0;
  uint64_t evicted_bytes = 0;
  uint64_t disk_bytes = 0;
  uint64_t queued = 0;          // compilations waiting for a worker
  uint64_t running = 0;         // jobs on the workers
  absl::Duration compile_time;  // sum over compilations
  std::string warning;          // what is wrong with the directory now, or why it is not used
};

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_CACHE_STATS_H_
