#include "kernels/pack/pack_weights.h"

#include <algorithm>
#include <cstring>

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
        scale_columns_(spec.ScaleColumns(shape.k)) {}

  PackedWeights Pack() const {
    PackedWeights packed;
    packed.units.resize(static_cast<size_t>(packing_.layout.Bytes(shape_.n, shape_.k)));
    for (int64_t chunk = 0; chunk < PackedLayout::Chunks(shape_.k); ++chunk) {
      for (int64_t row = 0; row < shape_.n; ++row) PackRow(chunk, row, packed.units.data());
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

  void PackRow(int64_t chunk, int64_t row, std::byte* units) const {
    const int64_t unit = row / PackedLayout::kUnitRows;
    const auto row_of_unit = static_cast<int>(row % PackedLayout::kUnitRows);
    std::byte* const to = units + layout().UnitOffset(chunk, unit, shape_.n, shape_.k);
    const int64_t first = chunk * PackedLayout::kChunkColumns;
    PackCodes(row, first, row_of_unit, to + layout().code_offset());
    for (int set = 0; set < layout().sets(); ++set) {
      const int64_t column = first + set * layout().scale_step;
      if (column >= shape_.k) break;
      const int place = set * PackedLayout::kUnitRows + PackedLayout::PairIndex(row_of_unit);
      PackScale(GridIndex(row, column), to + place * layout().scale_bytes);
      if (!layout().has_zero_points) continue;
      to[layout().zero_point_offset() + place] =
          static_cast<std::byte>(ValueAt<int16_t>(tensors_.zero_points, GridIndex(row, column)));
    }
  }

  // A row's word of 8 codes goes to 4 words, two codes to each.
  void PackCodes(int64_t row, int64_t first, int row_of_unit, std::byte* codes) const {
    const int64_t row_words = spec_.RowWords(shape_.k);
    const int columns =
        static_cast<int>(std::min<int64_t>(shape_.k - first, PackedLayout::kChunkColumns));
    for (int column = 0; column < columns; ++column) {
      const auto word = ValueAt<uint32_t>(tensors_.codes, row * row_words + (first + column) / 8);
      const uint32_t code = word >> ((first + column) % 8 * 4) & 0xfu;
      const PackedLayout::CodePlace place = PackedLayout::PlaceOf(row_of_unit, column);
      std::byte& byte = codes[place.word * 4 + place.shift / 8];
      byte |= static_cast<std::byte>(code << (place.shift % 8));
    }
  }

  void PackScale(int64_t index, std::byte* to) const {
    if (!packing_.group_scale.present()) return;
    if (spec_.scale.bits != 8) {
      std::memcpy(to, tensors_.scales.data() + index * layout().scale_bytes,
                  static_cast<size_t>(layout().scale_bytes));
      return;
    }
    // Every 8-bit float is a bfloat16 number: the upper half of float32 holds it.
    const float value = ScaleAt(spec_.scale, tensors_.scales, index);
    const auto bits = static_cast<uint16_t>(device::BitsOf(value) >> 16);
    std::memcpy(to, &bits, sizeof(bits));
  }

  std::vector<std::byte> ChannelFactor() const {
    const bool row_scales = spec_.scale.present() && !packing_.group_scale.present();
    const bool secondary = spec_.secondary_scale != SecondaryScaleKind::kNone;
    std::vector<std::byte> factors;
    if (!row_scales && !secondary) return factors;
    factors.resize(static_cast<size_t>(shape_.n) * sizeof(float));
    for (int64_t row = 0; row < shape_.n; ++row) {
      float factor = row_scales ? ScaleAt(spec_.scale, tensors_.scales, GridIndex(row, 0)) : 1.0f;
      if (secondary) {
        const bool per_row = spec_.secondary_scale == SecondaryScaleKind::kChannel;
        factor *= ValueAt<float>(tensors_.secondary_scales, per_row ? row : 0);
      }
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
};

}  // namespace

PackedWeights PackWeights(const QuantSpec& spec, const LayerShape& shape,
                          const WeightTensors& tensors) {
  return Packer(spec, shape, tensors).Pack();
}

}  // namespace gemmd
