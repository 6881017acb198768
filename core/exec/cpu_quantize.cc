#include "core/exec/cpu_quantize.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/quant/activations.h"

namespace gemmd {
namespace {

float FixedScale(const StandardTensor& tensor) {
  float scale = 0;
  if (tensor.activation_scale.size() < sizeof(scale)) return scale;
  std::memcpy(&scale, tensor.activation_scale.data(), sizeof(scale));
  return scale;
}

}  // namespace

bool QuantizesX(const StandardTensor& tensor, const NumberFormat& x) {
  return x.bits > 8 && WhyNotQuantized(tensor).empty();
}

void QuantizeX(const StandardTensor& tensor, absl::Span<double> row) {
  const ActivationScaling scaling = ScalingOf(tensor.spec, FixedScale(tensor));
  const std::vector<float> values(row.begin(), row.end());
  const QuantizedRow quantized = QuantizeActivations(values, scaling);
  const auto columns = static_cast<int64_t>(row.size());
  const int64_t group = scaling.group > 0 ? scaling.group : std::max<int64_t>(columns, 1);
  for (int64_t k = 0; k < columns; ++k) {
    const double element = quantized.elements[static_cast<size_t>(k)];
    row[static_cast<size_t>(k)] = element * quantized.scales[static_cast<size_t>(k / group)];
  }
}

}  // namespace gemmd
