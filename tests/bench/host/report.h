// What    Results as JSON: one file per run, {"conditions": {...}, "rows": [...], "missing":
//         [...]}.
// Units   Microseconds, bytes, GB/s (1e9 bytes), TFLOP/s, MHz, watts, degrees Celsius.
// Threads Pure functions.
#ifndef GEMMD_TESTS_BENCH_HOST_REPORT_H_
#define GEMMD_TESTS_BENCH_HOST_REPORT_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/bench/host/check.h"
#include "tests/bench/host/statistics.h"

namespace gemmd::bench {

struct Conditions {
  std::string device;
  std::string uuid;
  std::string driver;
  std::string cuda;    // "13.0": what the driver offers
  std::string date;    // UTC, RFC 3339
  std::string commit;  // as given on the command line
  std::string digest;
  std::string cupti;
  std::string cublas;
  int sm_count = 0;
  int max_sm_mhz = 0;
  int max_memory_mhz = 0;
  int64_t flush_bytes = 0;
  int warmups = 0;
  int samples = 0;
};

// What the GPU reported right after the last sample of a point; 0 = unknown.
struct GpuState {
  int sm_mhz = 0;
  int memory_mhz = 0;
  int celsius = 0;
  double watts = 0;
};

struct Row {
  std::string implementation;  // gemmd, cublas_bf16, cublas_fp8_tensor
  std::string format;
  int64_t n = 0;
  int64_t k = 0;
  int64_t m = 0;
  std::string x_type;
  std::string y_type;
  std::string activation_used;  // gemmd: as a reply says
  std::string reason;           // why it is another type than the layer asks for
  std::string kernel;
  std::vector<std::pair<std::string, std::string>> config;
  std::vector<std::string> device_kernels;  // names as CUPTI saw them, in order
  Summary kernel_us;                        // sum of the operation's kernels, cold L2
  Summary graph_us;                         // the same inside a replayed graph
  Summary graph_span_us;                    // event to event around that replay
  Summary host_us;                          // one launch, without a profiler attached
  CheckResult check;
  int64_t weight_bytes = 0;      // as registered: codes, scales, zero points
  int64_t activation_bytes = 0;  // x, its scales and y
  GpuState gpu;
  std::string error;  // why the point or a part of it could not be measured
};

std::string RenderReport(const Conditions& conditions, const std::vector<Row>& rows,
                         const std::vector<std::string>& missing);

nlohmann::ordered_json ToJson(const Conditions& conditions);
nlohmann::ordered_json ToJson(const Row& row, const Conditions& conditions);

// One line for the terminal.
std::string Describe(const Row& row);

}  // namespace gemmd::bench

#endif  // GEMMD_TESTS_BENCH_HOST_REPORT_H_
