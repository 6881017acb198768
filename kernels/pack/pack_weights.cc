#include "kernels/pack/pack_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/contract/packed_weights.h"
#include "kernels/device/decode_number.cuh"
#include "kernels/device/pack_codes.cuh"
#include "kernels/pack/special_codes.h"
#include "kernels/select/sm90_config.h"

namespace gemmd {
namespace {

template <typename T>
T ValueAt(absl::Span<const std::byte> bytes, int64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

float ScaleAt(const NumberFormat& format, absl::Span<const std::byte> scales, int64_t index) {
  using device::NumberDecoder;
  if (format == kFloat32) return ValueAt<float>(scales, index);
  if (format == kFloat16) return NumberDecoder<kFloat16>::Decode(ValueAt<uint16_t>(scales, index));
  if (format == kBFloat16) {
    return NumberDecoder<kBFloat16>::Decode(ValueAt<uint16_t>(scales, index));
  }
  const auto code = ValueAt<uint8_t>(scales, index);
  if (format == kFloat8E4M3) return NumberDecoder<kFloat8E4M3>::Decode(code);
  if (format == kFloat8E5M2) return NumberDecoder<kFloat8E5M2>::Decode(code);
  return NumberDecoder<kFloat8E8M0>::Decode(code);
}

absl::Status NotPacked(const std::string& reason) {
  return Error(absl::StatusCode::kUnimplemented, "NO_KERNEL",
               absl::StrCat("the SM90 kernel does not take ", reason));
}

class ScalePacker {
 public:
  ScalePacker(const QuantSpec& spec, const LayerShape& shape, const WeightTensors& tensors)
      : spec_(spec),
        shape_(shape),
        tensors_(tensors),
        packing_(Sm90PackingOf(spec, shape)),
        scale_columns_(spec.ScaleColumns(shape.k)) {}

  absl::StatusOr<PackedScales> Pack() {
    const bool has_row_exponents = packing_.is_relative || packing_.is_folded;
    for (int64_t row = 0; has_row_exponents && row < shape_.n; ++row) {
      row_exponents_.push_back(has_float_zero_points() ? LargestWeightExponent(row) : LargestExponent(row));
    }
    PackedScales packed;
    const int64_t units = PackedLayout::Units(shape_.n);
    const int64_t unit_bytes = int64_t{layout().sets()} * layout().set_bytes();
    packed.units.resize(static_cast<size_t>(layout().Chunks(shape_.k) * units * unit_bytes));
    std::byte* to = packed.units.data();
    for (int64_t unit = 0; unit_bytes > 0 && unit < units; ++unit) {
      for (int64_t chunk = 0; chunk < layout().Chunks(shape_.k); ++chunk, to += unit_bytes) {
        GEMMD_RETURN_IF_ERROR(PackUnit(chunk, unit, to));
      }
    }
    packed.channel_factor = ChannelFactor();
    return packed;
  }

 private:
  const PackedLayout& layout() const { return packing_.layout; }
  bool has_float_zero_points() const { return spec_.zero_point == ZeroPointKind::kFloat; }
  int RowsOf(int64_t unit) const {
    return static_cast<int>(std::min<int64_t>(PackedLayout::kUnitRows,
                                              shape_.n - unit * PackedLayout::kUnitRows));
  }

  // Index of the scale and zero point of (row, column).
  int64_t GridIndex(int64_t row, int64_t column) const {
    const int64_t block_k = spec_.scale_block_k == 0 ? shape_.k : spec_.scale_block_k;
    return GridRow(row) * scale_columns_ + column / block_k;
  }
  int64_t GridRow(int64_t row) const {
    if (spec_.scale_block_n == 1) return row;
    return spec_.scale_block_n == 0 ? 0 : row / spec_.scale_block_n;
  }

  // Scales and zero points of a unit of a chunk.
  absl::Status PackUnit(int64_t chunk, int64_t unit, std::byte* to) const {
    for (int set = 0; set < layout().sets(); ++set) {
      const int64_t column = chunk * layout().chunk_columns() + set * layout().scale_step;
      if (column >= shape_.k) break;
      const int64_t grid_column = GridIndex(0, column);
      for (int row_of_unit = 0; row_of_unit < RowsOf(unit); ++row_of_unit) {
        const int64_t row = unit * PackedLayout::kUnitRows + row_of_unit;
        const int place = set * PackedLayout::kUnitRows + PackedLayout::PairIndex(row_of_unit);
        const int64_t index = GridRow(row) * scale_columns_ + grid_column;
        std::byte* const scale = to + place * layout().scale_bytes;
        std::byte* const zero_point = to + layout().zero_point_offset() - layout().scale_offset() +
                                      place * layout().zero_point_bytes;
        if (has_float_zero_points()) {
          GEMMD_RETURN_IF_ERROR(PackLine(row, index, scale, zero_point));
          continue;
        }
        GEMMD_RETURN_IF_ERROR(PackScale(row, column, index, scale));
        if (!layout().has_zero_points()) continue;
        const auto zero = ValueAt<int16_t>(tensors_.zero_points, index);
        if (zero < 0 || zero > 255) return NotPacked(absl::StrCat("zero point ", zero));
        *zero_point = static_cast<std::byte>(zero);
      }
    }
    return absl::OkStatus();
  }

  const std::byte* RowOf(int64_t row) const {
    return tensors_.codes.data() + row * spec_.RowWords(shape_.k) * 4;
  }

  // The code whose first bit is bit `bit` of a row.
  uint32_t CodeAt(const std::byte* row, int64_t bit) const {
    const auto low = static_cast<uint32_t>(row[bit / 8]);
    const int shift = static_cast<int>(bit % 8);
    const uint32_t both =
        shift + spec_.weight.bits > 8 ? low | static_cast<uint32_t>(row[bit / 8 + 1]) << 8 : low;
    return both >> shift & device::LowBits(spec_.weight.bits);
  }

  // Of the row's largest finite scale; scales of zeros do not count when scales are folded.
  int LargestExponent(int64_t row) const {
    const int64_t block_k = spec_.scale_block_k;
    float largest = 0;
    for (int64_t column = 0; column < shape_.k; column += block_k) {
      const float scale = std::abs(ScaleAt(spec_.scale, tensors_.scales, GridIndex(row, column)));
      if (!std::isfinite(scale) || (packing_.is_folded && IsZeroGroup(row, column))) continue;
      largest = std::max(largest, scale);
    }
    return largest == 0 ? 0 : std::ilogb(largest);
  }
  // With floating-point zero points: so that the row's largest possible weight is 2^7 to 2^8, relative to it, as
  // 8-bit integers are.
  int LargestWeightExponent(int64_t row) const {
    const auto most = static_cast<double>(device::LowBits(spec_.weight.bits));
    double largest = 0;
    for (int64_t column = 0; column < scale_columns_; ++column) {
      const int64_t index = GridRow(row) * scale_columns_ + column;
      const double zero = ValueAt<float>(tensors_.zero_points, index);
      const double weight = std::abs(GridScale(index)) * std::max(std::abs(zero), std::abs(most - zero));
      if (std::isfinite(weight)) largest = std::max(largest, weight);
    }
    return largest == 0 ? 0 : std::ilogb(largest) - 7;
  }
  double GridScale(int64_t index) const {
    return spec_.scale.present() ? ScaleAt(spec_.scale, tensors_.scales, index) : 1.0;
  }

  // Slope and offset of weight = code * scale - zero point * scale.
  absl::Status PackLine(int64_t row, int64_t index, std::byte* scale_to, std::byte* offset_to) const {
    const double scale = std::ldexp(GridScale(index), -RowExponent(row));
    const auto zero = static_cast<double>(ValueAt<float>(tensors_.zero_points, index));
    const auto slope = static_cast<float>(scale);
    const auto offset = static_cast<float>(-zero * scale);
    if (!std::isfinite(slope) || !std::isfinite(offset)) {
      return NotPacked("scales or floating-point zero points that are infinite or no number");
    }
    std::memcpy(scale_to, &slope, sizeof(slope));
    std::memcpy(offset_to, &offset, sizeof(offset));
    return absl::OkStatus();
  }

  int RowExponent(int64_t row) const {
    return row_exponents_.empty() ? 0 : row_exponents_[static_cast<size_t>(row)];
  }

  // Whether all weights of the group that `column` lies in are zero; for floats.
  bool IsZeroGroup(int64_t row, int64_t column) const {
    const std::byte* const words = RowOf(row);
    const int64_t first = column / spec_.scale_block_k * spec_.scale_block_k;
    const int64_t end = std::min(first + spec_.scale_block_k, shape_.k);
    for (int64_t k = first; k < end; ++k) {
      if ((CodeAt(words, k * spec_.weight.bits) & device::LowBits(spec_.weight.bits - 1)) != 0) {
        return false;
      }
    }
    return true;
  }

  // The scale of (row, column), which is scale `index`.
  absl::Status PackScale(int64_t row, int64_t column, int64_t index, std::byte* to) const {
    if (!packing_.group_scale.present()) return absl::OkStatus();
    if (packing_.is_folded) return PackFolded(row, column, index, to);
    if (spec_.scale.bits != 8 && !packing_.is_relative) {
      std::memcpy(to, tensors_.scales.data() + index * layout().scale_bytes,
                  static_cast<size_t>(layout().scale_bytes));
      return absl::OkStatus();
    }
    // Every 8-bit float is a bfloat16 number, at any power of two: the upper half of float32 holds it.
    const float value = std::ldexp(ScaleAt(spec_.scale, tensors_.scales, index), -RowExponent(row));
    const auto bits = static_cast<uint16_t>(device::BitsOf(value) >> 16);
    std::memcpy(to, &bits, sizeof(bits));
    return absl::OkStatus();
  }

  absl::Status PackFolded(int64_t row, int64_t column, int64_t index, std::byte* to) const {
    const float scale = ScaleAt(spec_.scale, tensors_.scales, index);
    if (!std::isfinite(scale)) return NotPacked("scales that are no number");
    const int below = RowExponent(row) - std::ilogb(scale);
    const bool fits = below >= 0 && below <= Sm90Operand::kFoldedSteps;
    if (!fits && !IsZeroGroup(row, column)) {
      return NotPacked(absl::StrCat("scales of one row that are 2^", below, " apart"));
    }
    *to = static_cast<std::byte>(fits ? Sm90Operand::kFoldedSteps - below : 0);
    return absl::OkStatus();
  }

  std::vector<std::byte> ChannelFactor() const {
    const bool row_scales = spec_.scale.present() && !packing_.group_scale.present();
    const bool secondary = spec_.secondary_scale != SecondaryScaleKind::kNone;
    const int debt = packing_.is_folded ? Sm90Operand::kFoldedDebt
                                        : packing_.operand.DebtExponent(layout().has_zero_points());
    std::vector<std::byte> factors;
    if (!row_scales && !secondary && debt == 0 && !packing_.is_relative) return factors;
    factors.resize(static_cast<size_t>(shape_.n) * sizeof(float));
    for (int64_t row = 0; row < shape_.n; ++row) {
      float factor = row_scales ? ScaleAt(spec_.scale, tensors_.scales, GridIndex(row, 0)) : 1.0f;
      if (secondary) {
        const bool per_row = spec_.secondary_scale == SecondaryScaleKind::kChannel;
        factor *= ValueAt<float>(tensors_.secondary_scales, per_row ? row : 0);
      }
      factor = std::ldexp(factor, debt + RowExponent(row));
      std::memcpy(factors.data() + row * static_cast<int64_t>(sizeof(float)), &factor,
                  sizeof(factor));
    }
    return factors;
  }

  const QuantSpec& spec_;
  const LayerShape& shape_;
  const WeightTensors& tensors_;
  const Sm90Packing packing_;
  const int64_t scale_columns_;
  std::vector<int> row_exponents_;
};

}  // namespace

absl::StatusOr<PackedScales> PackScales(const QuantSpec& spec, const LayerShape& shape,
                                        const WeightTensors& tensors) {
  // Wide operands are the floats themselves, and decoding knows finite ones only.
  if (Sm90PackingOf(spec, shape).operand.is_wide() &&
      HasSpecialCode(spec.weight, shape, tensors.codes)) {
    return NotPacked("weights that are infinite or no number");
  }
  return ScalePacker(spec, shape, tensors).Pack();
}

PackArgs PackArgsOf(const QuantSpec& spec, const LayerShape& shape) {
  const Sm90Packing packing = Sm90PackingOf(spec, shape);
  PackArgs args{};
  args.row_words = spec.RowWords(shape.k);
  args.n = shape.n;
  args.k = shape.k;
  args.layout = packing.layout;
  args.map = CodeMapOf(packing.operand, packing.layout.has_zero_points());
  return args;
}

void PackOnHost(const PackArgs& args, int64_t units) {
  for (int64_t block = 0; block < args.Blocks(units); ++block) {
    const device::PackedUnit unit = device::PackedUnit::Of(args, block);
    uint32_t words[device::PackedUnit::kMostWords] = {};
    for (int slot = 0; slot < unit.slots(); ++slot) {
      unit.PutSlot(slot, [&words](int word, uint32_t bits) { words[word] |= bits; });
    }
    char* const to = unit.destination();
    std::memcpy(to + args.layout.code_offset(), words, static_cast<size_t>(unit.code_words()) * 4);
    if (args.scale_unit_bytes() == 0) continue;
    std::memcpy(to + args.layout.scale_offset(), unit.scales(),
                static_cast<size_t>(args.scale_unit_bytes()));
  }
}

absl::StatusOr<PackedWeights> PackWeights(const QuantSpec& spec, const LayerShape& shape,
                                          const WeightTensors& tensors) {
  GEMMD_ASSIGN_OR_RETURN(PackedScales scales, PackScales(spec, shape, tensors));
  PackedWeights packed;
  PackArgs args = PackArgsOf(spec, shape);
  packed.units = HostBuffer::Uninitialized(static_cast<size_t>(args.layout.Bytes(shape.n, shape.k)));
  args.codes = reinterpret_cast<const uint32_t*>(tensors.codes.data());
  args.scales = scales.units.data();
  args.units = packed.units.data();
  PackOnHost(args, PackedLayout::Units(shape.n));
  packed.channel_factor = std::move(scales.channel_factor);
  return packed;
}

}  // namespace gemmd
