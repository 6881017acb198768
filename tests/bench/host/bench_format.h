// What    The formats of suite.json: name -> the layer's QuantSpec, and what a request gives it.
// Errors  NotFound: an unknown name; the message lists the known ones.
// Threads Pure functions.
#ifndef GEMMD_TESTS_BENCH_HOST_BENCH_FORMAT_H_
#define GEMMD_TESTS_BENCH_HOST_BENCH_FORMAT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/contract/quant_spec.h"

namespace gemmd::bench {

struct BenchFormat {
  std::string name;
  QuantSpec spec;
  NumberFormat x;              // elements of x in memory
  NumberFormat y = kBFloat16;  // elements of y
  int64_t x_scale_group = -1;  // columns sharing one float32 scale of x; 0 = the row, -1 = none

  // Columns of the activation scales, 0 for none.
  int64_t XScaleColumns(int64_t k) const {
    if (x_scale_group < 0) return 0;
    return x_scale_group == 0 ? 1 : (k + x_scale_group - 1) / x_scale_group;
  }
};

absl::StatusOr<BenchFormat> FindFormat(const std::string& name);
std::vector<std::string> FormatNames();

}  // namespace gemmd::bench

#endif  // GEMMD_TESTS_BENCH_HOST_BENCH_FORMAT_H_
