#include "core/exec/cpu_quantize.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/quant/activations.h"

namespace gemmd {
namespace {

float StaticScale(const StandardTensor& tensor) {
  float scale = 0;
  if (tensor.activation_scale.size() < sizeof(scale)) return scale;
  std::memcpy(&scale, tensor.activation_scale.data(), sizeof(scale));
  return scale;
}

}  // namespace

NumberFormat WantedActivation(const StandardTensor& tensor) {
  return tensor.encoding.present() ? tensor.encoding.format : tensor.spec.activation;
}

std::string WhyNotQuantized(const StandardTensor& tensor) {
  const QuantSpec& spec = tensor.spec;
  if (tensor.encoding.zero_points || !tensor.activation_zero_point.empty()) {
    return "the layer wants them with zero points";
  }
  if (!(spec.activation == kFloat8E4M3 || spec.activation == kFloat8E5M2 ||
        spec.activation == kInt8)) {
    return "only e4m3, e5m2 and int8 are made of x";
  }
  if (tensor.encoding.present()) return "the layer wants them encoded in its own way";
  if (spec.activation_scale == ActivationScaleKind::kNone) {
    return "the layer does not say how they are scaled";
  }
  return "";
}

bool QuantizesX(const StandardTensor& tensor, const NumberFormat& x) {
  return x.bits > 8 && WhyNotQuantized(tensor).empty();
}

void QuantizeX(const StandardTensor& tensor, absl::Span<double> row) {
  const ActivationScaling scaling = ScalingOf(tensor.spec, StaticScale(tensor));
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
