#include "tests/bench/host/statistics.h"

#include <algorithm>
#include <cmath>

namespace gemmd::bench {

double Quantile(const std::vector<double>& sorted, double fraction) {
  if (sorted.empty()) return 0;
  const double position = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(std::floor(position));
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (position - std::floor(position)) * (sorted[above] - sorted[below]);
}

Summary Summarize(std::vector<double> samples) {
  Summary summary;
  if (samples.empty()) return summary;
  std::sort(samples.begin(), samples.end());
  summary.samples = static_cast<int64_t>(samples.size());
  summary.median = Quantile(samples, 0.5);
  summary.min = samples.front();
  summary.p10 = Quantile(samples, 0.1);
  summary.p90 = Quantile(samples, 0.9);
  summary.max = samples.back();
  return summary;
}

}  // namespace gemmd::bench
