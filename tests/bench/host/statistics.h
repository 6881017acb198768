// What    Median and spread of repeated measurements.
// Units   Those of the samples.
// Threads Pure functions.
#ifndef GEMMD_TESTS_BENCH_HOST_STATISTICS_H_
#define GEMMD_TESTS_BENCH_HOST_STATISTICS_H_

#include <cstdint>
#include <vector>

namespace gemmd::bench {

struct Summary {
  int64_t samples = 0;  // 0: not measured, everything else is 0
  double median = 0;
  double min = 0;
  double p10 = 0;
  double p90 = 0;
  double max = 0;
};

Summary Summarize(std::vector<double> samples);

// Value at `fraction` (0 to 1) of ascending `sorted`, linear between neighbours; 0 when empty.
double Quantile(const std::vector<double>& sorted, double fraction);

}  // namespace gemmd::bench

#endif  // GEMMD_TESTS_BENCH_HOST_STATISTICS_H_
