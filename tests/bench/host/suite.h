// What    The points to measure: `dense` of suite.json, narrowed by the filters of the command
//         line.
// Errors  InvalidArgument: no JSON, or a field is missing or of the wrong type.
// Threads Pure functions.
#ifndef GEMMD_TESTS_BENCH_HOST_SUITE_H_
#define GEMMD_TESTS_BENCH_HOST_SUITE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gemmd::bench {

// One layer and the numbers of tokens to measure it with.
struct Problem {
  std::string format;
  int64_t n = 0;
  int64_t k = 0;
  std::vector<int64_t> m;
};

// An empty list keeps everything.
struct Filter {
  std::vector<std::string> formats;
  std::vector<int64_t> n;
  std::vector<int64_t> k;
  std::vector<int64_t> m;
};

absl::StatusOr<std::vector<Problem>> ParseSuite(const std::string& json);

// The problems that pass; their M is filter.m where that is given, so points beyond the suite can
// be asked for.
std::vector<Problem> Narrow(const std::vector<Problem>& problems, const Filter& filter);

}  // namespace gemmd::bench

#endif  // GEMMD_TESTS_BENCH_HOST_SUITE_H_
