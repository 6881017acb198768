#include "kernels/tune/synthetic_layer.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/status.h"
#include "kernels/select/sm90_config.h"

namespace gemmd {
namespace {

constexpr int64_t kRows = 256;  // packed for real

// SplitMix64.
class RandomBits {
 public:
  explicit RandomBits(uint64_t seed) : state_(seed) {}
  uint32_t Next() {
    state_ += 0x9e3779b97f4a7c15u;
    uint64_t z = state_;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return static_cast<uint32_t>((z ^ z >> 31) >> 32);
  }
  uint32_t Below(uint32_t bound) { return Next() % bound; }

 private:
  uint64_t state_;
};

bool IsFinite(const NumberFormat& format, uint32_t code) {
  if (format.kind == NumberKind::kInteger) return true;
  const uint32_t ones = (1u << (format.bits - 1)) - 1;
  const uint32_t magnitude = code & ones;
  switch (format.special) {
    case SpecialValues::kNone:
      return true;
    case SpecialValues::kNanOnly:
      return magnitude != ones;
    case SpecialValues::kIeee:
      break;
  }
  return magnitude >> format.mantissa_bits != (1u << format.exponent_bits) - 1;
}

std::vector<uint32_t> FiniteCodes(const NumberFormat& format) {
  std::vector<uint32_t> codes;
  for (uint32_t code = 0; code < 1u << format.bits; ++code) {
    if (IsFinite(format, code)) codes.push_back(code);
  }
  return codes;
}

void Append(std::vector<std::byte>& bytes, uint32_t value, int size) {
  for (int i = 0; i < size; ++i) bytes.push_back(static_cast<std::byte>(value >> 8 * i));
}

// A positive number near 1 of a float or exponent format.
uint32_t CodeNearOne(const NumberFormat& format, RandomBits& random) {
  const uint32_t shift = random.Below(3);
  if (format.kind == NumberKind::kExponent) return 126 + shift;
  const auto exponent = static_cast<uint32_t>(format.bias()) - 1 + shift;
  return exponent << format.mantissa_bits | random.Below(1u << format.mantissa_bits);
}

void AppendScales(const NumberFormat& format, int64_t count, RandomBits& random,
                  std::vector<std::byte>& bytes) {
  for (int64_t i = 0; i < count; ++i) Append(bytes, CodeNearOne(format, random), format.bits / 8);
}

std::vector<std::byte> MakeCodes(const QuantSpec& spec, const LayerShape& shape,
                                 RandomBits& random) {
  const std::vector<uint32_t> book = FiniteCodes(spec.weight);
  const int64_t row_bytes = spec.RowWords(shape.k) * 4;
  std::vector<std::byte> codes(static_cast<size_t>(shape.n * row_bytes));
  for (int64_t n = 0; n < shape.n; ++n) {
    std::byte* const row = codes.data() + n * row_bytes;
    for (int64_t k = 0; k < shape.k; ++k) {
      const int64_t first = k * spec.weight.bits;
      uint32_t code = book[random.Below(static_cast<uint32_t>(book.size()))] << (first % 8);
      for (int64_t byte = first / 8; byte <= (first + spec.weight.bits - 1) / 8; ++byte) {
        row[byte] |= static_cast<std::byte>(code);
        code >>= 8;
      }
    }
  }
  return codes;
}

uint32_t RandomElement(ElementType type, RandomBits& random) {
  const uint32_t bits = random.Next();
  switch (type) {
    case ElementType::kFloat32:  // 2^-8 to 2, either sign, as below
      return (bits & 0x807fffffu) | (119 + (bits >> 23) % 8) << 23;
    case ElementType::kBFloat16:
      return (bits & 0x807fu) | (119 + (bits >> 16) % 8) << 7;
    case ElementType::kFloat16:
      return (bits & 0x83ffu) | (7 + (bits >> 16) % 8) << 10;
    case ElementType::kFloat8E4M3:
      return (bits & 0x80u) | (bits >> 8) % 0x7f;
    case ElementType::kFloat8E5M2:
      return (bits & 0x80u) | (bits >> 8) % 0x7c;
    case ElementType::kInt8:
      break;
  }
  return bits & 0xffu;
}

}  // namespace

SyntheticTensors MakeSyntheticTensors(const QuantSpec& spec, const LayerShape& shape,
                                      uint64_t seed) {
  RandomBits random(seed);
  SyntheticTensors tensors;
  tensors.codes = MakeCodes(spec, shape, random);
  const int64_t cells = spec.ScaleRows(shape.n) * spec.ScaleColumns(shape.k);
  if (spec.scale.present()) AppendScales(spec.scale, cells, random, tensors.scales);
  if (spec.zero_point == ZeroPointKind::kInteger) {
    for (int64_t i = 0; i < cells; ++i) {
      Append(tensors.zero_points, random.Below(1u << spec.weight.bits), 2);
    }
  } else if (spec.zero_point == ZeroPointKind::kFloat) {
    for (int64_t i = 0; i < cells; ++i) {  // thirds of codes
      const float zero_point = static_cast<float>(random.Below(3u << spec.weight.bits)) / 3;
      Append(tensors.zero_points, __builtin_bit_cast(uint32_t, zero_point), 4);
    }
  }
  const bool is_tensor = spec.secondary_scale == SecondaryScaleKind::kTensor;
  if (spec.secondary_scale != SecondaryScaleKind::kNone) {
    AppendScales(kFloat32, is_tensor ? 1 : shape.n, random, tensors.secondary_scales);
  }
  return tensors;
}

PackedWeights RepeatRows(const PackedWeights& packed, const PackedLayout& layout, int64_t rows,
                         const LayerShape& shape) {
  PackedWeights whole;
  const auto k = shape.k;
  const int64_t units = PackedLayout::Units(shape.n);
  const int64_t source_units = PackedLayout::Units(rows);
  whole.units.resize(static_cast<size_t>(layout.Bytes(shape.n, k)));
  for (int64_t chunk = 0; chunk < layout.Chunks(k); ++chunk) {
    const auto bytes = static_cast<size_t>(layout.UnitBytes(layout.SlabsOf(chunk, k)));
    for (int64_t unit = 0; unit < units; ++unit) {
      std::memcpy(whole.units.data() + layout.UnitOffset(chunk, unit, shape.n, k),
                  packed.units.data() + layout.UnitOffset(chunk, unit % source_units, rows, k), bytes);
    }
  }
  if (packed.channel_factor.empty()) return whole;
  for (int64_t n = 0; n < shape.n; ++n) {
    const std::byte* const factor = packed.channel_factor.data() + n % rows * sizeof(float);
    whole.channel_factor.insert(whole.channel_factor.end(), factor, factor + sizeof(float));
  }
  return whole;
}

absl::StatusOr<PackedWeights> MakeSyntheticWeights(const QuantSpec& spec, const LayerShape& shape,
                                                   uint64_t seed) {
  const LayerShape block = {1, std::min(shape.n, kRows), shape.k};
  const SyntheticTensors tensors = MakeSyntheticTensors(spec, block, seed);
  GEMMD_ASSIGN_OR_RETURN(PackedWeights packed, PackWeights(spec, block, tensors.view()));
  if (block.n == shape.n) return packed;
  return RepeatRows(packed, Sm90PackingOf(spec, block).layout, block.n, shape);
}

std::vector<std::byte> RandomElements(ElementType type, int64_t count, uint64_t seed) {
  RandomBits random(seed);
  std::vector<std::byte> bytes;
  bytes.reserve(static_cast<size_t>(count * ElementBytes(type)));
  for (int64_t i = 0; i < count; ++i) Append(bytes, RandomElement(type, random), ElementBytes(type));
  return bytes;
}

}  // namespace gemmd
