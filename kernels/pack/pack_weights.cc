#include "kernels/pack/pack_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/contract/packed_weights.h"
#include "kernels/device/decode_number.cuh"
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

class Packer {
 public:
  Packer(const QuantSpec& spec, const LayerShape& shape, const WeightTensors& tensors)
      : spec_(spec),
        shape_(shape),
        tensors_(tensors),
        packing_(Sm90PackingOf(spec, shape)),
        scale_columns_(spec.ScaleColumns(shape.k)),
        places_(Places(packing_.layout)),
        special_codes_(SpecialCodes(packing_)),
        flip_(packing_.operand.is_top_aligned(packing_.layout.has_zero_points)
                  ? 1u << (spec.weight.bits - 1)
                  : 0u) {}

  absl::StatusOr<PackedWeights> Pack() {
    const bool has_row_exponents = packing_.is_relative || packing_.is_folded;
    for (int64_t row = 0; has_row_exponents && row < shape_.n; ++row) {
      row_exponents_.push_back(LargestExponent(row));
    }
    PackedWeights packed;
    packed.units.resize(static_cast<size_t>(layout().Bytes(shape_.n, shape_.k)));
    for (int64_t row = 0; row < shape_.n; ++row) {
      for (int64_t chunk = 0; chunk < layout().Chunks(shape_.k); ++chunk) {
        GEMMD_RETURN_IF_ERROR(PackRow(chunk, row, packed.units.data()));
      }
    }
    packed.channel_factor = ChannelFactor();
    return packed;
  }

 private:
  const PackedLayout& layout() const { return packing_.layout; }

  // Index of the scale and zero point of (row, column).
  int64_t GridIndex(int64_t row, int64_t column) const {
    const int64_t block_n = spec_.scale_block_n == 0 ? shape_.n : spec_.scale_block_n;
    const int64_t block_k = spec_.scale_block_k == 0 ? shape_.k : spec_.scale_block_k;
    return row / block_n * scale_columns_ + column / block_k;
  }

  absl::Status PackRow(int64_t chunk, int64_t row, std::byte* units) const {
    const int64_t unit = row / PackedLayout::kUnitRows;
    const auto row_of_unit = static_cast<int>(row % PackedLayout::kUnitRows);
    std::byte* const to = units + layout().UnitOffset(chunk, unit, shape_.n, shape_.k);
    const int64_t first = chunk * layout().chunk_columns();
    GEMMD_RETURN_IF_ERROR(PackCodes(row, first, row_of_unit, to + layout().code_offset()));
    for (int set = 0; set < layout().sets(); ++set) {
      const int64_t column = first + set * layout().scale_step;
      if (column >= shape_.k) break;
      const int place = set * PackedLayout::kUnitRows + PackedLayout::PairIndex(row_of_unit);
      GEMMD_RETURN_IF_ERROR(PackScale(row, column, to + place * layout().scale_bytes));
      if (!layout().has_zero_points) continue;
      const auto zero = ValueAt<int16_t>(tensors_.zero_points, GridIndex(row, column));
      if (zero < 0 || zero > 255) return NotPacked(absl::StrCat("zero point ", zero));
      to[layout().zero_point_offset() + place] = static_cast<std::byte>(zero);
    }
    return absl::OkStatus();
  }

  static absl::Status NotPacked(const std::string& reason) {
    return Error(absl::StatusCode::kUnimplemented, "NO_KERNEL",
                 absl::StrCat("the SM90 kernel does not take ", reason));
  }

  absl::Status PackCodes(int64_t row, int64_t first, int row_of_unit, std::byte* codes) const {
    const std::byte* const words = tensors_.codes.data() + row * spec_.RowWords(shape_.k) * 4;
    const auto columns =
        static_cast<int>(std::min<int64_t>(shape_.k - first, layout().chunk_columns()));
    for (int column = 0; column < columns; ++column) {
      const uint32_t code = CodeAt(words, (first + column) * spec_.weight.bits);
      if (!special_codes_.empty() && special_codes_[code]) {
        return NotPacked("weights that are infinite or no number");
      }
      const int slab = column / layout().slab_columns();
      PutCode(code ^ flip_, row_of_unit, column % layout().slab_columns(),
              codes + slab * layout().slab_bytes());
    }
    return absl::OkStatus();
  }

  // The code whose first bit is bit `bit` of a row.
  uint32_t CodeAt(const std::byte* row, int64_t bit) const {
    const auto low = static_cast<uint32_t>(row[bit / 8]);
    const int shift = static_cast<int>(bit % 8);
    const uint32_t both =
        shift + spec_.weight.bits > 8 ? low | static_cast<uint32_t>(row[bit / 8 + 1]) << 8 : low;
    return both >> shift & device::LowBits(spec_.weight.bits);
  }

  void PutCode(uint32_t code, int row_of_unit, int column, std::byte* slab) const {
    const Place* place = &places_[(row_of_unit * layout().slab_columns() + column) * kMostPlanes];
    for (int bit = 0; bit < layout().code_bits; ++place) {
      const uint32_t part = code >> bit & device::LowBits(place->bits);
      slab[place->byte] |= static_cast<std::byte>(part << place->shift);
      bit += place->bits;
    }
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
  int RowExponent(int64_t row) const {
    return row_exponents_.empty() ? 0 : row_exponents_[static_cast<size_t>(row)];
  }

  // Whether all weights of the group that `column` lies in are zero; for floats.
  bool IsZeroGroup(int64_t row, int64_t column) const {
    const std::byte* const words = tensors_.codes.data() + row * spec_.RowWords(shape_.k) * 4;
    const int64_t first = column / spec_.scale_block_k * spec_.scale_block_k;
    const int64_t end = std::min(first + spec_.scale_block_k, shape_.k);
    for (int64_t k = first; k < end; ++k) {
      if ((CodeAt(words, k * spec_.weight.bits) & device::LowBits(spec_.weight.bits - 1)) != 0) {
        return false;
      }
    }
    return true;
  }

  absl::Status PackScale(int64_t row, int64_t column, std::byte* to) const {
    if (!packing_.group_scale.present()) return absl::OkStatus();
    const int64_t index = GridIndex(row, column);
    if (packing_.is_folded) return PackFolded(row, column, to);
    if (spec_.scale.bits != 8) {
      std::memcpy(to, tensors_.scales.data() + index * layout().scale_bytes,
                  static_cast<size_t>(layout().scale_bytes));
      return absl::OkStatus();
    }
    // Every 8-bit float is a bfloat16 number: the upper half of float32 holds it.
    const float value = std::ldexp(ScaleAt(spec_.scale, tensors_.scales, index), -RowExponent(row));
    const auto bits = static_cast<uint16_t>(device::BitsOf(value) >> 16);
    std::memcpy(to, &bits, sizeof(bits));
    return absl::OkStatus();
  }

  absl::Status PackFolded(int64_t row, int64_t column, std::byte* to) const {
    const float scale = ScaleAt(spec_.scale, tensors_.scales, GridIndex(row, column));
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
                                        : packing_.operand.DebtExponent(layout().has_zero_points);
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

  // Where the planes' parts of a code go: byte of the slab, and bits.
  struct Place {
    int byte = 0;
    uint8_t shift = 0;
    uint8_t bits = 0;
  };
  static constexpr int kMostPlanes = 3;

  // [row of the unit][column of the slab][kMostPlanes]
  static std::vector<Place> Places(const PackedLayout& layout) {
    std::vector<Place> places(
        static_cast<size_t>(PackedLayout::kUnitRows * layout.slab_columns() * kMostPlanes));
    for (int at = 0; at < PackedLayout::kUnitRows * layout.slab_columns(); ++at) {
      Place* to = &places[static_cast<size_t>(at * kMostPlanes)];
      if (layout.has_signs_apart) {
        PlaceMagnitudeAndSign(layout, at, to);
        continue;
      }
      for (int bit = 0; bit < layout.code_bits; ++to) {
        const PackedLayout::Plane plane = layout.PlaneAt(bit);
        const PackedLayout::CodePlace place =
            layout.PlaceOf(plane, at / layout.slab_columns(), at % layout.slab_columns());
        *to = {place.word * 4 + place.shift / 8, static_cast<uint8_t>(place.shift % 8),
               static_cast<uint8_t>(plane.bits)};
        bit += plane.bits;
      }
    }
    return places;
  }

  static void PlaceMagnitudeAndSign(const PackedLayout& layout, int at, Place* to) {
    const PackedLayout::CodePlace place =
        layout.PlaceOf(layout.PlaneAt(0), at / layout.slab_columns(), at % layout.slab_columns());
    const int sign = PackedLayout::SignShift(place.shift / layout.lane_bits);
    to[0] = {place.word * 4 + place.shift / 8, static_cast<uint8_t>(place.shift % 8), 3};
    to[1] = {place.word * 4 + sign / 8, static_cast<uint8_t>(sign % 8), 1};
  }

  // Codes that 16-bit operands would read as finite numbers; empty when there are none.
  static std::vector<bool> SpecialCodes(const Sm90Packing& packing) {
    const NumberFormat& weight = packing.operand.weight;
    std::vector<bool> special;
    if (!packing.operand.is_wide() || weight.special == SpecialValues::kNone) return special;
    for (uint32_t code = 0; code < 1u << weight.bits; ++code) {
      const uint32_t magnitude = code & device::LowBits(weight.bits - 1);
      const uint32_t first = weight.special == SpecialValues::kIeee
                                 ? device::LowBits(weight.exponent_bits) << weight.mantissa_bits
                                 : device::LowBits(weight.bits - 1);
      special.push_back(magnitude >= first);
    }
    return special;
  }

  const QuantSpec& spec_;
  const LayerShape& shape_;
  const WeightTensors& tensors_;
  const Sm90Packing packing_;
  const int64_t scale_columns_;
  const std::vector<Place> places_;
  const std::vector<bool> special_codes_;
  std::vector<int> row_exponents_;
  const uint32_t flip_;  // makes unsigned codes two's complement
};

}  // namespace

absl::StatusOr<PackedWeights> PackWeights(const QuantSpec& spec, const LayerShape& shape,
                                          const WeightTensors& tensors) {
  return Packer(spec, shape, tensors).Pack();
}

}  // namespace gemmd
