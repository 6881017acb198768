// What    Parts c, d and e, on a directory of many entries: looking a kernel up in memory; from disk
//         to its verified bytes, and into the GPU; a cache from its opening to its kernels.
// Threads One thread.
#ifndef GEMMD_TESTS_BENCH_JIT_PARTS_CACHE_TIMES_H_
#define GEMMD_TESTS_BENCH_JIT_PARTS_CACHE_TIMES_H_

#include "tests/bench/jit/parts/setup.h"

namespace gemmd::jit_bench {

enum CacheParts : unsigned { kLookups = 1, kDiskHits = 2, kRestarts = 4 };

void MeasureCache(const Setup& setup, unsigned parts, Log& log);

}  // namespace gemmd::jit_bench

#endif  // GEMMD_TESTS_BENCH_JIT_PARTS_CACHE_TIMES_H_
