#include "core/quant/quantize.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

void Allocate(StandardTensor& out) {
  const QuantSpec& spec = out.spec;
  const auto [experts, n, k] = out.shape;
  out.scale_columns = spec.ScaleColumns(k);
  const int64_t cells = experts * spec.ScaleRows(n) * out.scale_columns;
  // Every byte of it will be written.
  out.codes = Buffer::Uninitialized(static_cast<size_t>(experts * n * spec.RowWords(k) * 4));
  out.scales.resize(cells * spec.scale.bits / 8);
  if (spec.zero_point == ZeroPointKind::kInteger) out.zero_points.resize(cells * sizeof(int16_t));
  if (spec.zero_point == ZeroPointKind::kFloat) out.zero_points.resize(cells * sizeof(float));
  if (spec.secondary_scale == SecondaryScaleKind::kTensor) {
    out.secondary_scales.resize(experts * sizeof(float));
  } else if (spec.secondary_scale == SecondaryScaleKind::kChannel) {
    out.secondary_scales.resize(experts * n * sizeof(float));
  }
}

}  // namespace

absl::Status CheckCanBeMade(const QuantSpec& spec) {
  const char* unsupported = nullptr;
  if (spec.has_group_index) unsupported = "a group index";
  if (spec.bias.present()) unsupported = "a bias";
  if (spec.activation_scale == ActivationScaleKind::kStaticTensor) {
    unsupported = "static activation scales";
  }
  if (unsupported != nullptr) {
    return Error(absl::StatusCode::kUnimplemented, "UNSUPPORTED_SPEC",
                 absl::StrCat("weights cannot be quantized to a spec with ", unsupported));
  }
  const bool scaled = spec.scale.present();
  const bool needs_scale =
      spec.zero_point != ZeroPointKind::kNone || spec.secondary_scale != SecondaryScaleKind::kNone;
  if (needs_scale && !scaled) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_SPEC",
                 "zero points and secondary scales need a scale");
  }
  GEMMD_RETURN_IF_ERROR(Validate(spec));
  return CheckHoldsNumbers("weight", spec.weight);
}

absl::StatusOr<StandardTensor> QuantizeRows(WeightQuantizer::Read read, const LayerShape& shape,
                                            const QuantSpec& spec, ScaleRule rule,
                                            const QuantizeWork& work, QuantizationError* error) {
  GEMMD_RETURN_IF_ERROR(CheckCanBeMade(spec));
  StandardTensor out;
  out.spec = spec;
  out.shape = shape;
  Allocate(out);
  WeightQuantizer quantizer(std::move(read), rule, work, out);
  GEMMD_RETURN_IF_ERROR(quantizer.Run());
  if (error != nullptr) error->Add(quantizer.error());
  GEMMD_RETURN_IF_ERROR(Validate(out));
  return out;
}

absl::StatusOr<StandardTensor> Quantize(absl::Span<const float> weights, const LayerShape& shape,
                                        const QuantSpec& spec, ScaleRule rule) {
  int64_t count = 0;
  const bool overflow = __builtin_mul_overflow(shape.experts, shape.n, &count) ||
                        __builtin_mul_overflow(count, shape.k, &count);
  if (overflow || shape.experts < 1 || shape.n < 1 || shape.k < 1 ||
      static_cast<uint64_t>(count) != weights.size()) {
    return Error(absl::StatusCode::kInvalidArgument, "SHAPE_MISMATCH",
                 absl::StrCat("got ", weights.size(), " weights for ", shape.experts, " x ",
                              shape.n, " x ", shape.k));
  }
  const auto read = [weights, shape](int64_t expert, int64_t row, absl::Span<float> out) {
    const absl::Span<const float> from = weights.subspan((expert * shape.n + row) * shape.k, shape.k);
    std::copy(from.begin(), from.end(), out.begin());
  };
  return QuantizeRows(read, shape, spec, rule);
}

}  // namespace gemmd
