// What    The machine and the build that a run is of.
// Threads One thread.
#ifndef GEMMD_TESTS_BENCH_JIT_PARTS_CONDITIONS_H_
#define GEMMD_TESTS_BENCH_JIT_PARTS_CONDITIONS_H_

#include <string>

#include "tests/bench/jit/parts/measurement.h"
#include "tests/bench/jit/parts/setup.h"

namespace gemmd::jit_bench {

Conditions ConditionsOf(const Setup& setup, const std::string& commit);

// "AMD EPYC 9354", or the name of the machine's kind.
std::string ProcessorName();
std::string UtcNow();  // RFC 3339

}  // namespace gemmd::jit_bench

#endif  // GEMMD_TESTS_BENCH_JIT_PARTS_CONDITIONS_H_
