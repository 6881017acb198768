// What    Part b: every kernel of a layer over all M, through a cache with an empty directory and
//         helper processes.
//           at once        the generic and the specialised kernels are asked for together
//           READY          the generic ones, asked for as the daemon does when a layer is loaded
//           behind READY   until the last specialised one that the daemon then asks for
// Threads One thread; the cache's workers.
#ifndef GEMMD_TESTS_BENCH_JIT_PARTS_LAYER_TIMES_H_
#define GEMMD_TESTS_BENCH_JIT_PARTS_LAYER_TIMES_H_

#include "tests/bench/jit/parts/setup.h"

namespace gemmd::jit_bench {

void MeasureLayers(const Setup& setup, Log& log);

}  // namespace gemmd::jit_bench

#endif  // GEMMD_TESTS_BENCH_JIT_PARTS_LAYER_TIMES_H_
