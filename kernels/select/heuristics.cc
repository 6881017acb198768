#include "kernels/select/heuristics.h"

namespace gemmd {
namespace {

constexpr int kTf32SignificantBits = 11;

// Significant bits of code - zero point.
int SignificantBits(const QuantSpec& spec) {
  // Zero points lie in [0, 2^bits]: the difference needs one bit more than the code.
  if (spec.weight.kind == NumberKind::kInteger) return spec.weight.bits + 1;
  return spec.weight.mantissa_bits + 1;
}

}  // namespace

int WeightTerms(const QuantSpec& spec) {
  const bool keeps_significand =
      (!spec.scale.present() || spec.scale.kind == NumberKind::kExponent) &&
      spec.secondary_scale == SecondaryScaleKind::kNone && spec.zero_point != ZeroPointKind::kFloat;
  return keeps_significand && SignificantBits(spec) <= kTf32SignificantBits ? 1 : 2;
}

GemmConfig ChooseConfig(const QuantSpec& spec, RowMapping row_mapping, CodeOrder codes) {
  return {
      .layer = {spec.weight, spec.scale, spec.zero_point, codes},
      .compute = {row_mapping, WeightTerms(spec)},
      .tuning = {},
  };
}

}  // namespace gemmd
