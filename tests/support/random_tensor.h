// What    Random StandardTensors of any spec; every one passes Validate.
// Keys    The same spec, shape, seed and kind of values give the same tensor.
#ifndef GEMMD_TESTS_SUPPORT_RANDOM_TENSOR_H_
#define GEMMD_TESTS_SUPPORT_RANDOM_TENSOR_H_

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/quant/reference.h"
#include "core/quant/standard_tensor.h"

namespace gemmd::testing {

using Random = std::mt19937_64;

inline int64_t Uniform(Random& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

template <typename T>
void Append(Buffer& buffer, T value) {
  const size_t at = buffer.size();
  buffer.resize(at + sizeof(T));
  std::memcpy(buffer.data() + at, &value, sizeof(T));
}

// A number of `format` in memory: 1, 2 or 4 bytes.
inline void AppendNumber(Buffer& buffer, const NumberFormat& format, double value) {
  const uint32_t code = EncodeNumber(format, value);
  if (format.bits == 8) return Append(buffer, static_cast<uint8_t>(code));
  if (format.bits == 16) return Append(buffer, static_cast<uint16_t>(code));
  Append(buffer, code);
}

// kTame: weights below 1024, scales that are powers of two from 1/4 to 2, so that sums of products
// stay exact in double. kAny: every finite code of up to 8 bits, scales of nine significant bits
// from 1/8 to 8.
enum class Values { kTame, kAny };

// A finite code of `format`.
inline uint32_t RandomCode(Random& random, const NumberFormat& format, Values values) {
  const double bound = values == Values::kAny && format.bits <= 8 ? HUGE_VAL : 1024;
  const auto mask = static_cast<int64_t>((uint64_t{1} << format.bits) - 1);
  while (true) {
    const auto code = static_cast<uint32_t>(Uniform(random, 0, mask));
    const double value = DecodeNumber(format, code);
    if (std::isfinite(value) && std::abs(value) < bound) return code;
  }
}

inline Buffer RandomCodes(Random& random, const QuantSpec& spec, const LayerShape& shape,
                          Values values) {
  const int64_t words = spec.RowWords(shape.k);
  std::vector<uint32_t> codes(static_cast<size_t>(shape.experts * shape.n * words));
  for (int64_t row = 0; row < shape.experts * shape.n; ++row) {
    uint32_t* out = codes.data() + row * words;
    for (int64_t k = 0; k < shape.k; ++k) {
      const uint32_t code = RandomCode(random, spec.weight, values);
      for (int bit = 0; bit < spec.weight.bits; ++bit) {
        const int64_t at = k * spec.weight.bits + bit;
        out[at / 32] |= ((code >> bit) & 1u) << (at % 32);
      }
    }
  }
  Buffer buffer(codes.size() * 4);
  std::memcpy(buffer.data(), codes.data(), buffer.size());
  return buffer;
}

inline double RandomScale(Random& random, Values values) {
  if (values == Values::kTame) {
    return std::ldexp(1.0, static_cast<int>(Uniform(random, -2, 1)));
  }
  const double mantissa = 1.0 + static_cast<double>(Uniform(random, 0, 255)) / 256;
  return std::ldexp(mantissa, static_cast<int>(Uniform(random, -3, 2)));
}

// With a group index every column gets a random group out of ScaleColumns(k).
inline StandardTensor RandomTensor(const QuantSpec& spec, const LayerShape& shape, uint64_t seed,
                                   Values values = Values::kTame) {
  Random random(seed);
  StandardTensor tensor;
  tensor.spec = spec;
  tensor.shape = shape;
  tensor.scale_columns = spec.ScaleColumns(shape.k);
  tensor.codes = RandomCodes(random, spec, shape, values);
  const int64_t grid = shape.experts * spec.ScaleRows(shape.n) * tensor.scale_columns;
  for (int64_t i = 0; i < grid; ++i) {
    if (spec.scale.present()) AppendNumber(tensor.scales, spec.scale, RandomScale(random, values));
    const int64_t zero = spec.weight.kind == NumberKind::kInteger
                             ? Uniform(random, 0, (1 << spec.weight.bits) - 1)
                             : 0;
    if (spec.zero_point == ZeroPointKind::kInteger) {
      Append(tensor.zero_points, static_cast<int16_t>(zero));
    } else if (spec.zero_point == ZeroPointKind::kFloat) {
      Append(tensor.zero_points, static_cast<float>(zero) + 0.5f);
    }
  }
  const int64_t secondary = spec.secondary_scale == SecondaryScaleKind::kNone ? 0
                            : spec.secondary_scale == SecondaryScaleKind::kTensor
                                ? shape.experts
                                : shape.experts * shape.n;
  for (int64_t i = 0; i < secondary; ++i) {
    Append(tensor.secondary_scales, static_cast<float>(RandomScale(random, values)));
  }
  for (int64_t i = 0; spec.has_group_index && i < shape.experts * shape.k; ++i) {
    Append(tensor.group_index, static_cast<int32_t>(Uniform(random, 0, tensor.scale_columns - 1)));
  }
  for (int64_t i = 0; spec.bias.present() && i < shape.experts * shape.n; ++i) {
    AppendNumber(tensor.bias, spec.bias, static_cast<double>(Uniform(random, -8, 8)) / 4);
  }
  for (int64_t i = 0;
       spec.activation_scale == ActivationScaleKind::kStaticTensor && i < shape.experts; ++i) {
    Append(tensor.activation_scale,
           values == Values::kAny ? static_cast<float>(RandomScale(random, values)) : 0.25f);
  }
  return tensor;
}

inline StandardTensor AnyTensor(const QuantSpec& spec, const LayerShape& shape, uint64_t seed) {
  return RandomTensor(spec, shape, seed, Values::kAny);
}

inline QuantSpec Int4Spec(int64_t group = 32) {
  QuantSpec spec;
  spec.weight = IntegerFormat(4);
  spec.scale = kFloat16;
  spec.scale_block_k = group;
  return spec;
}

}  // namespace gemmd::testing

#endif  // GEMMD_TESTS_SUPPORT_RANDOM_TENSOR_H_
