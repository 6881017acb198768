// What    Whether a kernel's output is right: sampled rows and columns against the double-precision
//         reference, beside the error of a control.
//           16-bit x  control: each weight rounded to the type of x, exact sum, rounded to y's type
//           8-bit x   control: the exact sum rounded to y's type
//         Passed: every element was written, and the error is at most 1.25 times the control's
//         (16-bit; a sample of a few hundred elements scatters), or the control's plus 1e-3
//         (8-bit).
// Units   Errors are relative Frobenius norms over the sampled elements.
// Threads Immutable after construction.
#ifndef GEMMD_TESTS_BENCH_HOST_CHECK_H_
#define GEMMD_TESTS_BENCH_HOST_CHECK_H_

#include <cstdint>
#include <vector>

#include "core/quant/standard_tensor.h"
#include "tests/bench/host/bench_format.h"

namespace gemmd::bench {

struct CheckResult {
  int64_t elements = 0;   // compared with the reference; 0: not checked
  int64_t inspected = 0;  // looked at for the poison
  int64_t unwritten = 0;  // of those: still the poison, or NaN
  double error = 0;
  double control_error = 0;
  bool passed = false;
};

// Every byte of an output before it is computed; a NaN in every type of y.
inline constexpr unsigned char kPoisonByte = 0xff;

// Up to `most` of 0 .. extent-1 in ascending order, the first and the last among them.
std::vector<int64_t> SampleRows(int64_t extent, int64_t most, uint64_t seed);

class SampleChecker {
 public:
  SampleChecker(const BenchFormat& format, const StandardTensor& tensor, uint64_t seed);

  // Each element of `x`, `x_scales` and `y` is one sampled row: k elements, its scales, n elements.
  CheckResult Compare(const std::vector<Buffer>& x, const std::vector<std::vector<float>>& x_scales,
                      const std::vector<Buffer>& y) const;

  // Elements of `y` that are NaN; the poison is one.
  int64_t CountUnwritten(const Buffer& y) const;

 private:
  struct Column {
    int64_t index;
    std::vector<double> exact;
    std::vector<double> control;  // empty when the control uses exact weights
  };

  const BenchFormat format_;
  const int64_t n_;
  const int64_t k_;
  std::vector<Column> columns_;
};

}  // namespace gemmd::bench

#endif  // GEMMD_TESTS_BENCH_HOST_CHECK_H_
