#include "tests/bench/host/random_inputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/quant/reference.h"

namespace gemmd::bench {
namespace {

constexpr double kTwoPi = 6.283185307179586;
constexpr size_t kTableBits = 16;

// Standard deviation of activations in their own type: the largest of some thousand normal values,
// about four deviations out, meets the largest finite value.
double Deviation(const NumberFormat& type) {
  if (type == kInt8) return 32;
  if (type.bits == 8) return type == kFloat8E5M2 ? 57344 / 4.0 : 448 / 4.0;
  return 1;
}

uint32_t EncodeElement(const NumberFormat& type, double value) {
  if (type == kInt8) {
    return static_cast<uint8_t>(
        static_cast<int8_t>(std::clamp(std::nearbyint(value), -127., 127.)));
  }
  return EncodeNumber(type, value);
}

// 65,536 encoded normal values to draw from.
std::vector<uint16_t> NormalTable(const NumberFormat& type, FastRandom& random) {
  std::vector<uint16_t> table(size_t{1} << kTableBits);
  const double deviation = Deviation(type);
  for (uint16_t& entry : table) {
    const double radius = std::sqrt(-2 * std::log(random.Uniform(0x1p-60, 1)));
    const double value = deviation * radius * std::cos(kTwoPi * random.Uniform(0, 1));
    entry = static_cast<uint16_t>(EncodeElement(type, value));
  }
  return table;
}

template <typename Element>
void Draw(const std::vector<uint16_t>& table, int64_t count, FastRandom& random, Buffer& out) {
  out.resize(static_cast<size_t>(count) * sizeof(Element));
  uint64_t bits = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (i % 4 == 0) bits = random.Next();
    const auto element = static_cast<Element>(table[bits & 0xffff]);
    bits >>= 16;
    std::memcpy(out.data() + static_cast<size_t>(i) * sizeof(Element), &element, sizeof(Element));
  }
}

void FillWithRandomBits(Buffer& buffer, FastRandom& random) {
  for (size_t at = 0; at < buffer.size(); at += 8) {
    const uint64_t bits = random.Next();
    std::memcpy(buffer.data() + at, &bits, std::min<size_t>(8, buffer.size() - at));
  }
}

// The spare bits at the end of each row are 0.
void ClearSpareBits(const QuantSpec& spec, int64_t n, int64_t k, Buffer& codes) {
  const int64_t words = spec.RowWords(k);
  const int64_t used = k * spec.weight.bits % 32;
  if (used == 0) return;
  const uint32_t mask = (1u << used) - 1;
  for (int64_t row = 0; row < n; ++row) {
    std::byte* last = codes.data() + ((row + 1) * words - 1) * 4;
    uint32_t word;
    std::memcpy(&word, last, 4);
    word &= mask;
    std::memcpy(last, &word, 4);
  }
}

// 8-bit codes that are NaN or infinite lose their highest exponent bit.
void ReplaceSpecialBytes(const NumberFormat& format, Buffer& codes) {
  std::byte replacement[256];
  for (uint32_t code = 0; code < 256; ++code) {
    const bool finite = std::isfinite(DecodeNumber(format, code));
    replacement[code] = static_cast<std::byte>(finite ? code : code & 0xbfu);
  }
  for (std::byte& code : codes) code = replacement[static_cast<uint8_t>(code)];
}

Buffer RandomCodes(const QuantSpec& spec, int64_t n, int64_t k, FastRandom& random) {
  if (spec.weight.bits == 16) {
    Buffer codes(static_cast<size_t>(n * spec.RowWords(k) * 4));
    const Buffer values = RandomActivations(spec.weight, n * k, random.Next());
    for (int64_t row = 0; row < n; ++row) {
      std::memcpy(codes.data() + row * spec.RowWords(k) * 4, values.data() + row * k * 2,
                  static_cast<size_t>(k) * 2);
    }
    return codes;
  }
  Buffer codes(static_cast<size_t>(n * spec.RowWords(k) * 4));
  FillWithRandomBits(codes, random);
  ClearSpareBits(spec, n, k, codes);
  if (spec.weight.bits == 8 && spec.weight.special != SpecialValues::kNone) {
    ReplaceSpecialBytes(spec.weight, codes);
  }
  return codes;
}

double LargestFinite(const NumberFormat& format) {
  double largest = 0;
  for (uint32_t code = 0; code < (1u << format.bits); ++code) {
    const double value = DecodeNumber(format, code);
    if (std::isfinite(value)) largest = std::max(largest, value);
  }
  return largest;
}

// Weights get a deviation well below 1, so that sums over thousands of columns stay small in
// float16.
double RandomScale(const QuantSpec& spec, double typical, FastRandom& random) {
  if (spec.scale.kind == NumberKind::kExponent) {
    return std::ldexp(1.0, static_cast<int>(random.Next() % 5) - 8);
  }
  const double bound = spec.scale.bits == 8 ? 4.0 : 0.25 / typical;  // e4m3 keeps its precision
  return random.Uniform(bound / 4, bound);
}

void AppendNumber(const NumberFormat& format, double value, Buffer& out) {
  const uint32_t code = EncodeNumber(format, value);
  const auto* bytes = reinterpret_cast<const std::byte*>(&code);
  out.insert(out.end(), bytes, bytes + format.bits / 8);
}

template <typename T>
void Append(T value, Buffer& out) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  out.insert(out.end(), bytes, bytes + sizeof(T));
}

}  // namespace

StandardTensor RandomLayer(const QuantSpec& spec, int64_t n, int64_t k, uint64_t seed) {
  FastRandom random(seed);
  StandardTensor tensor;
  tensor.spec = spec;
  tensor.shape = {1, n, k};
  tensor.scale_columns = spec.ScaleColumns(k);
  tensor.codes = RandomCodes(spec, n, k, random);
  const int64_t cells = spec.ScaleRows(n) * tensor.scale_columns;
  const double typical = !spec.scale.present()                      ? 1
                         : spec.weight.kind == NumberKind::kInteger ? 1 << (spec.weight.bits - 1)
                                                                    : LargestFinite(spec.weight);
  for (int64_t i = 0; i < cells; ++i) {
    if (spec.scale.present())
      AppendNumber(spec.scale, RandomScale(spec, typical, random), tensor.scales);
    if (spec.zero_point == ZeroPointKind::kInteger) {
      Append(static_cast<int16_t>(random.Next() % (1u << spec.weight.bits)), tensor.zero_points);
    } else if (spec.zero_point == ZeroPointKind::kFloat) {
      Append(static_cast<float>(random.Uniform(0, 1 << spec.weight.bits)), tensor.zero_points);
    }
  }
  const int64_t secondary = spec.secondary_scale == SecondaryScaleKind::kNone     ? 0
                            : spec.secondary_scale == SecondaryScaleKind::kTensor ? 1
                                                                                  : n;
  for (int64_t i = 0; i < secondary; ++i) {
    Append(static_cast<float>(random.Uniform(0.005, 0.02)), tensor.secondary_scales);
  }
  return tensor;
}

Buffer RandomActivations(const NumberFormat& type, int64_t count, uint64_t seed) {
  FastRandom random(seed);
  const std::vector<uint16_t> table = NormalTable(type, random);
  Buffer out;
  if (type.bits == 8) {
    Draw<uint8_t>(table, count, random, out);
  } else {
    Draw<uint16_t>(table, count, random, out);
  }
  return out;
}

std::vector<float> RandomActivationScales(const NumberFormat& type, int64_t count, uint64_t seed) {
  FastRandom random(seed);
  std::vector<float> scales(static_cast<size_t>(count));
  for (float& scale : scales) {
    scale = static_cast<float>(random.Uniform(0.5, 1.5) / Deviation(type));
  }
  return scales;
}

}  // namespace gemmd::bench
