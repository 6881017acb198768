// What    Memory and processor time of another process of this user, from /proc.
// Errors  Unavailable: the process is gone or not ours.
// Threads Thread-safe.
#ifndef GEMMD_TESTS_BENCH_LOADING_PROCESS_USAGE_H_
#define GEMMD_TESTS_BENCH_LOADING_PROCESS_USAGE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gemmd::bench {

struct ProcessUsage {
  uint64_t resident_bytes = 0;
  uint64_t peak_resident_bytes = 0;  // since the last ResetPeak, or its start
  double user_seconds = 0;
  double system_seconds = 0;
};

absl::StatusOr<ProcessUsage> UsageOf(int pid);

absl::Status ResetPeak(int pid);

}  // namespace gemmd::bench

#endif  // GEMMD_TESTS_BENCH_LOADING_PROCESS_USAGE_H_
