#include "core/quant/activations.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/quant/reference.h"

namespace gemmd {
namespace {

template <typename T>
T At(const Buffer& buffer, int64_t index) {
  T value;
  std::memcpy(&value, buffer.data() + index * sizeof(T), sizeof(T));
  return value;
}

int64_t GroupOf(const ActivationScaling& scaling, size_t columns) {
  return scaling.group > 0 ? scaling.group : std::max<int64_t>(static_cast<int64_t>(columns), 1);
}

float ScaleOf(const ValueRange& range, const ActivationScaling& scaling) {
  if (scaling.static_scale != 0) return scaling.static_scale;
  if (scaling.scale == kFloat8E8M0) {
    const double power = PowerScale(range, scaling.element, scaling.rule);
    return power == 0 ? scaling.zero_scale : static_cast<float>(power);
  }
  const float ideal = IdealScale(range, scaling.element, scaling.rule, scaling.asymmetric);
  if (ideal == 0) return scaling.zero_scale;
  if (scaling.scale == kFloat32 || !std::isfinite(ideal)) return ideal;
  const float scaled = scaling.global_scale * ideal;
  return static_cast<float>(DecodeNumber(scaling.scale, EncodeScale(scaling.scale, scaled)));
}

// Two's complement.
float ZeroPointOf(const ValueRange& range, float scale, const ActivationScaling& scaling) {
  if (scaling.static_scale != 0) return scaling.static_zero_point;
  if (range.low == 0 && range.high == 0) return 0;
  const float low = -static_cast<float>(1 << (scaling.element.bits - 1));
  return std::clamp(low - std::nearbyint(range.low / scale), low, -low - 1);
}

float ElementOf(float value, float factor, float zero_point, const ActivationScaling& scaling) {
  const NumberFormat& element = scaling.element;
  if (element.kind != NumberKind::kInteger) {
    return static_cast<float>(DecodeNumber(element, EncodeNumber(element, value / factor)));
  }
  if (!scaling.asymmetric) {
    return static_cast<float>(QuantizeSymmetric(value, factor, element.bits, scaling.rule));
  }
  const float low = -static_cast<float>(1 << (element.bits - 1));
  return std::clamp(std::nearbyint(value / factor + zero_point), low, -low - 1);
}

}  // namespace

NumberFormat WantedActivation(const StandardTensor& tensor) {
  return tensor.encoding.present() ? tensor.encoding.format : tensor.spec.activation;
}

std::string WhyNotQuantized(const StandardTensor& tensor) {
  const QuantSpec& spec = tensor.spec;
  if (tensor.shape.experts > 1) return "mixtures of experts do not quantize activations";
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

ActivationScaling ScalingOf(const QuantSpec& spec, float static_scale) {
  ActivationScaling scaling;
  scaling.element = spec.activation;
  scaling.group =
      spec.activation_scale == ActivationScaleKind::kDynamicGroup ? spec.activation_group : 0;
  if (spec.activation_scale == ActivationScaleKind::kStaticTensor) {
    scaling.static_scale = static_scale;
  }
  return scaling;
}

ActivationScaling ScalingOf(const StandardTensor& tensor, int64_t expert) {
  const float static_scale =
      tensor.activation_scale.empty() ? 0 : At<float>(tensor.activation_scale, expert);
  const ActivationEncoding& encoding = tensor.encoding;
  if (!encoding.present()) return ScalingOf(tensor.spec, static_scale);
  ActivationScaling scaling;
  scaling.element = encoding.format;
  scaling.group = encoding.group;
  scaling.asymmetric = encoding.zero_points;
  scaling.static_scale = static_scale;
  if (!tensor.activation_zero_point.empty()) {
    scaling.static_zero_point = At<int16_t>(tensor.activation_zero_point, expert);
  }
  if (encoding.group_scale.present()) scaling.scale = encoding.group_scale;
  if (encoding.group_scale == kFloat8E4M3) {
    scaling.global_scale = At<float>(tensor.activation_global_scale, expert);
  }
  return scaling;
}

QuantizedRow QuantizeActivations(absl::Span<const float> row, const ActivationScaling& scaling) {
  const int64_t group = GroupOf(scaling, row.size());
  QuantizedRow out;
  out.elements.reserve(row.size());
  for (size_t first = 0; first < row.size(); first += group) {
    const absl::Span<const float> values = row.subspan(first, group);
    const ValueRange range = RangeOf(values);
    const float scale = ScaleOf(range, scaling);
    const float zero_point = scaling.asymmetric ? ZeroPointOf(range, scale, scaling) : 0;
    out.scales.push_back(scale);
    if (scaling.asymmetric) out.zero_points.push_back(zero_point);
    const float factor = scale / scaling.global_scale;
    for (const float value : values) {
      out.elements.push_back(ElementOf(value, factor, zero_point, scaling));
    }
  }
  return out;
}

std::vector<float> DequantizeActivations(const QuantizedRow& row,
                                         const ActivationScaling& scaling) {
  const int64_t group = GroupOf(scaling, row.elements.size());
  std::vector<float> values(row.elements.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t g = i / group;
    const float zero_point = scaling.asymmetric ? row.zero_points[g] : 0;
    values[i] = (row.elements[i] - zero_point) * (row.scales[g] / scaling.global_scale);
  }
  return values;
}

}  // namespace gemmd
