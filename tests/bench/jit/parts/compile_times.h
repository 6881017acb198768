// What    Part a: one kernel, no cache. In this process, by a running helper process, and by one that
//         is started for it.
// Threads One thread.
#ifndef GEMMD_TESTS_BENCH_JIT_PARTS_COMPILE_TIMES_H_
#define GEMMD_TESTS_BENCH_JIT_PARTS_COMPILE_TIMES_H_

#include "tests/bench/jit/parts/setup.h"

namespace gemmd::jit_bench {

void MeasureCompiles(const Setup& setup, Log& log);

}  // namespace gemmd::jit_bench

#endif  // GEMMD_TESTS_BENCH_JIT_PARTS_COMPILE_TIMES_H_
