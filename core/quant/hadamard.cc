#include "core/quant/hadamard.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace gemmd {
namespace {

// Sums and differences of the elements `apart` from each other, within each block of 2 * apart.
void Butterflies(size_t apart, std::vector<float>& h) {
  for (size_t first = 0; first < h.size(); first += 2 * apart) {
    for (size_t i = first; i < first + apart; ++i) {
      const float low = h[i];
      const float high = h[i + apart];
      h[i] = low + high;
      h[i + apart] = low - high;
    }
  }
}

}  // namespace

void TransformByHadamard(int64_t block, absl::Span<double> row) {
  std::vector<float> h(row.begin(), row.end());
  for (size_t apart = 1; apart < static_cast<size_t>(block); apart *= 2) Butterflies(apart, h);
  const auto factor = static_cast<float>(1 / std::sqrt(static_cast<double>(block)));
  std::transform(h.begin(), h.end(), row.begin(),
                 [=](float value) { return static_cast<double>(value * factor); });
}

}  // namespace gemmd
