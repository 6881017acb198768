#include "core/quant/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/quant/bit_row.h"
#include "core/quant/reference.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

template <typename T>
void Store(T value, int64_t index, Buffer& buffer) {
  std::memcpy(buffer.data() + index * sizeof(value), &value, sizeof(value));
}

absl::Status CheckTarget(const QuantSpec& spec) {
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
  return absl::OkStatus();
}

absl::Status CheckFinite(absl::Span<const float> weights, const LayerShape& shape) {
  for (size_t i = 0; i < weights.size(); ++i) {
    if (std::isfinite(weights[i])) continue;
    const auto index = static_cast<int64_t>(i);
    return Error(
        absl::StatusCode::kInvalidArgument, "NOT_FINITE",
        absl::StrCat("weight of expert ", index / (shape.n * shape.k), ", row ",
                     index / shape.k % shape.n, ", column ", index % shape.k, " is ", weights[i]));
  }
  return absl::OkStatus();
}

// Quantizes one expert after the other into `out`, whose buffers have their sizes.
class Quantizer {
 public:
  Quantizer(absl::Span<const float> weights, ScaleRule rule, StandardTensor& out)
      : weights_(weights), rule_(rule), out_(out), spec_(out.spec) {
    block_n_ = spec_.scale_block_n == 0 ? out.shape.n : spec_.scale_block_n;
    block_k_ = spec_.scale_block_k == 0 ? out.shape.k : spec_.scale_block_k;
    asymmetric_ = spec_.zero_point != ZeroPointKind::kNone;
    powers_ = spec_.scale == kFloat8E8M0;
    wide_ = spec_.weight.bits > 8;
    largest_ = static_cast<float>(LargestValue(spec_.weight));
  }

  void Expert(int64_t expert) {
    if (spec_.scale.present()) {
      CollectRanges(expert);
      SetSecondary(expert);
      SetScales(expert);
    }
    for (int64_t row = 0; row < out_.shape.n; ++row) SetRow(expert, row);
  }

 private:
  int64_t grid_rows() const { return spec_.ScaleRows(out_.shape.n); }
  const float* Row(int64_t expert, int64_t row) const {
    return weights_.data() + (expert * out_.shape.n + row) * out_.shape.k;
  }
  // The block of scale row and column `cell` of this expert.
  int64_t Cell(int64_t row, int64_t column) const {
    return row / block_n_ * out_.scale_columns + column / block_k_;
  }

  void CollectRanges(int64_t expert) {
    ranges_.assign(grid_rows() * out_.scale_columns, ValueRange());
    for (int64_t row = 0; row < out_.shape.n; ++row) {
      const float* values = Row(expert, row);
      for (int64_t column = 0; column < out_.shape.k; ++column) {
        Include(values[column], ranges_[Cell(row, column)]);
      }
    }
  }

  // Weights of 16 and 32 bits are not scaled.
  double Ideal(const ValueRange& range) const {
    if (wide_) return 1;
    if (powers_ && !asymmetric_) return PowerScale(range, spec_.weight, rule_);
    const double ideal = IdealScale(range, spec_.weight, rule_, asymmetric_);
    return powers_ && ideal > 0 ? RoundUpToPower(ideal) : ideal;
  }

  // The largest scale of `first` to `last` becomes the largest of the scale's type, or 1 where that
  // type has range enough.
  float SecondaryOf(int64_t first, int64_t last) const {
    if (wide_) return 1;
    double largest = 0;
    for (int64_t cell = first; cell < last; ++cell)
      largest = std::max(largest, Ideal(ranges_[cell]));
    const double top = spec_.scale.kind == NumberKind::kFloat && spec_.scale.bits == 8
                           ? LargestValue(spec_.scale)
                           : 1;
    const auto secondary = static_cast<float>(largest / top);
    return secondary > 0 ? secondary : 1;
  }

  void SetSecondary(int64_t expert) {
    const int64_t columns = out_.scale_columns;
    secondary_.assign(out_.shape.n, 1);
    if (spec_.secondary_scale == SecondaryScaleKind::kTensor) {
      const float value = SecondaryOf(0, static_cast<int64_t>(ranges_.size()));
      secondary_.assign(out_.shape.n, value);
      Store(value, expert, out_.secondary_scales);
    } else if (spec_.secondary_scale == SecondaryScaleKind::kChannel) {
      for (int64_t row = 0; row < out_.shape.n; ++row) {
        const int64_t first = row / block_n_ * columns;
        secondary_[row] = SecondaryOf(first, first + columns);
        Store(secondary_[row], expert * out_.shape.n + row, out_.secondary_scales);
      }
    }
  }

  void SetScales(int64_t expert) {
    const auto cells = static_cast<int64_t>(ranges_.size());
    factors_.assign(cells, 1);
    zero_points_.assign(cells, 0);
    for (int64_t cell = 0; cell < cells; ++cell) {
      const float secondary = secondary_[cell / out_.scale_columns * block_n_];
      const double ideal = Ideal(ranges_[cell]) / secondary;
      const uint32_t code = EncodeScale(spec_.scale, ideal > 0 ? ideal : 1.0);
      const int64_t index = expert * cells + cell;
      switch (spec_.scale.bits) {
        case 8:
          Store(static_cast<uint8_t>(code), index, out_.scales);
          break;
        case 16:
          Store(static_cast<uint16_t>(code), index, out_.scales);
          break;
        default:
          Store(code, index, out_.scales);
      }
      factors_[cell] = static_cast<float>(DecodeNumber(spec_.scale, code) * secondary);
      if (asymmetric_) SetZeroPoint(cell, index);
    }
  }

  void SetZeroPoint(int64_t cell, int64_t index) {
    const float exact = -ranges_[cell].low / factors_[cell];
    if (spec_.zero_point == ZeroPointKind::kFloat) {
      zero_points_[cell] = exact;
      Store(exact, index, out_.zero_points);
      return;
    }
    const float largest = static_cast<float>((1 << spec_.weight.bits) - 1);
    zero_points_[cell] = std::clamp(std::nearbyint(exact), 0.0f, largest);
    Store(static_cast<int16_t>(zero_points_[cell]), index, out_.zero_points);
  }

  // Near the end of float32 the nearest value may lie beyond it: then the next one towards zero.
  uint32_t CodeOf(float value, int64_t cell) const {
    const float factor = spec_.scale.present() ? factors_[cell] : 1;
    uint32_t code = NearestCode(value, factor, cell);
    if (std::abs(value) < 0x1p125f) return code;
    const bool is_integer = spec_.weight.kind == NumberKind::kInteger;
    double zero_point = is_integer ? 1 << (spec_.weight.bits - 1) : 0;
    if (asymmetric_) zero_point = zero_points_[cell];
    const auto is_finite = [&] {
      const double number = DecodeNumber(spec_.weight, code) - zero_point;
      return std::isfinite(static_cast<float>(number * factor));
    };
    const uint32_t step = is_integer && code < zero_point ? 1 : -1;  // floats: sign and magnitude
    while (!is_finite()) code += step;
    return code;
  }

  uint32_t NearestCode(float value, float factor, int64_t cell) const {
    const int bits = spec_.weight.bits;
    if (spec_.weight.kind != NumberKind::kInteger) {
      return EncodeNumber(spec_.weight, std::clamp(value / factor, -largest_, largest_));
    }
    if (!asymmetric_) {
      return static_cast<uint32_t>(QuantizeSymmetric(value, factor, bits, rule_) +
                                   (1 << (bits - 1)));
    }
    const double code = std::nearbyint(value / factor + zero_points_[cell]);
    return static_cast<uint32_t>(std::clamp<double>(code, 0, (1 << bits) - 1));
  }

  void SetRow(int64_t expert, int64_t row) {
    const int64_t k = out_.shape.k;
    const float* values = Row(expert, row);
    const int64_t at = (expert * out_.shape.n + row) * spec_.RowWords(k) * 4;
    if (spec_.weight.bits > 8) {
      for (int64_t column = 0; column < k; ++column) {
        const uint32_t code = CodeOf(values[column], Cell(row, column));
        std::memcpy(out_.codes.data() + at + column * spec_.weight.bits / 8, &code,
                    spec_.weight.bits / 8);
      }
      return;
    }
    std::vector<uint8_t> codes(k);
    for (int64_t column = 0; column < k; ++column) {
      codes[column] = static_cast<uint8_t>(CodeOf(values[column], Cell(row, column)));
    }
    PackBitRow(codes, spec_.weight.bits, out_.codes.data() + at);
  }

  absl::Span<const float> weights_;
  ScaleRule rule_;
  StandardTensor& out_;
  const QuantSpec& spec_;
  int64_t block_n_ = 1;
  int64_t block_k_ = 1;
  bool asymmetric_ = false;
  bool powers_ = false;
  bool wide_ = false;
  float largest_ = 1;
  std::vector<ValueRange> ranges_;  // of one expert's blocks, as all that follows
  std::vector<float> secondary_;    // per row
  std::vector<float> factors_;      // scale times secondary scale
  std::vector<float> zero_points_;
};

void Allocate(StandardTensor& out) {
  const QuantSpec& spec = out.spec;
  const auto [experts, n, k] = out.shape;
  out.scale_columns = spec.ScaleColumns(k);
  const int64_t cells = experts * spec.ScaleRows(n) * out.scale_columns;
  out.codes.resize(experts * n * spec.RowWords(k) * 4);
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

absl::StatusOr<StandardTensor> Quantize(absl::Span<const float> weights, const LayerShape& shape,
                                        const QuantSpec& spec, ScaleRule rule) {
  GEMMD_RETURN_IF_ERROR(CheckTarget(spec));
  int64_t count = 0;
  const bool overflow = __builtin_mul_overflow(shape.experts, shape.n, &count) ||
                        __builtin_mul_overflow(count, shape.k, &count);
  if (overflow || shape.experts < 1 || shape.n < 1 || shape.k < 1 ||
      static_cast<uint64_t>(count) != weights.size()) {
    return Error(absl::StatusCode::kInvalidArgument, "SHAPE_MISMATCH",
                 absl::StrCat("got ", weights.size(), " weights for ", shape.experts, " x ",
                              shape.n, " x ", shape.k));
  }
  GEMMD_RETURN_IF_ERROR(CheckFinite(weights, shape));
  StandardTensor out;
  out.spec = spec;
  out.shape = shape;
  GEMMD_RETURN_IF_ERROR(Validate(spec));
  Allocate(out);
  Quantizer quantizer(weights, rule, out);
  for (int64_t expert = 0; expert < shape.experts; ++expert) quantizer.Expert(expert);
  GEMMD_RETURN_IF_ERROR(Validate(out));
  return out;
}

}  // namespace gemmd
