// What    The command line of gemmd_bench.
// Errors  InvalidArgument: an unknown flag, or a value it cannot take; the message names both.
// Threads Pure functions.
#ifndef GEMMD_TESTS_BENCH_HOST_OPTIONS_H_
#define GEMMD_TESTS_BENCH_HOST_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/bench/host/suite.h"

namespace gemmd::bench {

struct Options {
  bool help = false;
  std::string suite = "tests/bench/suite.json";
  Filter filter;
  int samples = 21;
  int warmups = 2;
  int64_t flush_bytes = int64_t{512} << 20;
  absl::Duration time_limit = absl::Minutes(10);
  std::string output;  // empty = standard output
  std::string cache_dir;
  int device = 0;
  bool cublas = true;
  bool graph = true;
  bool check = true;
  bool quantize_x = false;
  bool fp16_accumulation = false;
  bool batch_invariant = false;
  bool manifest = false;  // print the layers, measure nothing
  std::string cupti_library;  // empty = the usual places
  std::string cublas_library;
  std::string commit = "unknown";
  std::string digest = "unknown";
  uint64_t seed = 1;
};

absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& arguments);
std::string HelpText();

}  // namespace gemmd::bench

#endif  // GEMMD_TESTS_BENCH_HOST_OPTIONS_H_
