// What    Kernels as a profiler saw them, and their sum per operation.
// Units   Microseconds.
// Errors  Internal: the operations were not equal.
// Threads Pure functions.
#ifndef GEMMD_TESTS_BENCH_HOST_KERNEL_RECORD_H_
#define GEMMD_TESTS_BENCH_HOST_KERNEL_RECORD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gemmd::bench {

struct KernelRecord {
  std::string name;  // demangled, without template arguments and parameters
  uint64_t start_ns = 0;
  double microseconds = 0;
};

struct KernelTimes {
  std::vector<double> microseconds;  // per operation
  std::vector<std::string> kernels;  // of one operation, in order
};

// Splits the records of `samples` operations that ran one after the other, in order of start.
absl::StatusOr<KernelTimes> SumPerSample(const std::vector<KernelRecord>& records, int samples);

}  // namespace gemmd::bench

#endif  // GEMMD_TESTS_BENCH_HOST_KERNEL_RECORD_H_
