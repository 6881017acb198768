// What    One number of a run with its spread and its bar, and the run as JSON:
//           {"conditions": {...}, "rows": [{"part": "a", "what", "subject", "unit",
//            "value": {"median", "min", "p10", "p90", "max", "samples"} or null, "reason",
//            "bar", "bar_cores", "within_bar": true, false or null, "note"}, ...]}
// Units   Those of the row.
// Threads Pure functions.
#ifndef GEMMD_TESTS_BENCH_JIT_PARTS_MEASUREMENT_H_
#define GEMMD_TESTS_BENCH_JIT_PARTS_MEASUREMENT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/bench/host/statistics.h"

namespace gemmd::jit_bench {

struct Conditions {
  std::string device;  // the GPU, or empty
  std::string driver;  // what CUDA version it offers
  std::string cpu;
  int cores = 0;  // that this process may use
  std::string kernel;
  std::string date;  // UTC, RFC 3339
  std::string commit;
  std::string compiler;  // version and build of NVRTC
  std::string sources;   // digest of the device sources
  std::string architecture;
  int workers = 0;
  int entries = 0;
};

struct Measurement {
  std::string part;  // "a" to "e"
  std::string what;
  std::string subject;
  std::string unit;
  bench::Summary value;  // without samples: not measured, see `reason`
  std::string reason = {};
  double bar = 0;     // the median is below it; 0 = none
  int bar_cores = 0;  // what machine the bar is for; 0 = any
  std::string note = {};
};

enum class Verdict { kNone, kMet, kMissed };
Verdict Judge(const Measurement& measurement, int cores);

std::string RenderReport(const Conditions& conditions, const std::vector<Measurement>& rows);

// One line for the terminal.
std::string Describe(const Measurement& measurement, int cores);

}  // namespace gemmd::jit_bench

#endif  // GEMMD_TESTS_BENCH_JIT_PARTS_MEASUREMENT_H_
