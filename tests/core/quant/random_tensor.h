// What    Random StandardTensors of any spec, for tests.
#ifndef GEMMD_TESTS_CORE_QUANT_RANDOM_TENSOR_H_
#define GEMMD_TESTS_CORE_QUANT_RANDOM_TENSOR_H_

#include <cmath>
#include <cstring>
#include <random>

#include "core/quant/bit_row.h"
#include "core/quant/reference.h"
#include "core/quant/standard_tensor.h"

namespace gemmd {

template <typename T>
void Append(Buffer& buffer, T value) {
  const size_t size = buffer.size();
  buffer.resize(size + sizeof(T));
  std::memcpy(buffer.data() + size, &value, sizeof(T));
}

inline void AppendNumber(Buffer& buffer, const NumberFormat& format, double value) {
  const uint32_t code = EncodeNumber(format, value);
  if (format.bits == 8) return Append(buffer, static_cast<uint8_t>(code));
  if (format.bits == 16) return Append(buffer, static_cast<uint16_t>(code));
  Append(buffer, code);
}

// A tensor that passes Validate(): finite codes, scales within [2^-3, 2^3], zero points in range.
// With has_group_index every column gets a random group out of ScaleColumns(k).
inline StandardTensor RandomTensor(const QuantSpec& spec, LayerShape shape, uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&random](uint32_t bound) { return random() % bound; };
  const auto scale = [&random] {
    return std::ldexp(1.0 + (random() % 256) / 256.0, random() % 6 - 3);
  };
  StandardTensor tensor{.spec = spec, .shape = shape};
  tensor.scale_columns = spec.ScaleColumns(shape.k);
  const int64_t rows = shape.experts * shape.n;
  const int64_t grid = shape.experts * spec.ScaleRows(shape.n) * tensor.scale_columns;
  for (int64_t row = 0; row < rows; ++row) {
    if (spec.weight.bits > 8) {
      const size_t start = tensor.codes.size();
      for (int64_t k = 0; k < shape.k; ++k) {
        AppendNumber(tensor.codes, spec.weight, scale() * (below(2) == 0 ? 1 : -1));
      }
      tensor.codes.resize(start + spec.RowWords(shape.k) * 4);
      continue;
    }
    std::vector<uint8_t> codes(shape.k);
    for (uint8_t& code : codes) {
      do {
        code = static_cast<uint8_t>(below(1u << spec.weight.bits));
      } while (!std::isfinite(DecodeNumber(spec.weight, code)));
    }
    tensor.codes.resize(tensor.codes.size() + BitRowBytes(shape.k, spec.weight.bits));
    PackBitRow(codes, spec.weight.bits,
               tensor.codes.data() + row * BitRowBytes(shape.k, spec.weight.bits));
  }
  for (int64_t i = 0; i < grid; ++i) {
    if (spec.scale.present()) AppendNumber(tensor.scales, spec.scale, scale());
    const uint32_t zero_point = below(1u << std::min<int>(spec.weight.bits, 8));
    if (spec.zero_point == ZeroPointKind::kInteger) {
      Append(tensor.zero_points, static_cast<int16_t>(zero_point));
    } else if (spec.zero_point == ZeroPointKind::kFloat) {
      Append(tensor.zero_points, zero_point + 0.25f);
    }
  }
  const int64_t secondary = spec.secondary_scale == SecondaryScaleKind::kNone     ? 0
                            : spec.secondary_scale == SecondaryScaleKind::kTensor ? shape.experts
                                                                                  : rows;
  for (int64_t i = 0; i < secondary; ++i)
    Append(tensor.secondary_scales, static_cast<float>(scale()));
  for (int64_t i = 0; spec.has_group_index && i < shape.experts * shape.k; ++i) {
    Append(tensor.group_index,
           static_cast<int32_t>(below(static_cast<uint32_t>(tensor.scale_columns))));
  }
  for (int64_t i = 0; spec.bias.present() && i < rows; ++i) {
    AppendNumber(tensor.bias, spec.bias, scale());
  }
  const bool static_scale = spec.activation_scale == ActivationScaleKind::kStaticTensor;
  for (int64_t i = 0; static_scale && i < shape.experts; ++i) {
    Append(tensor.activation_scale, static_cast<float>(scale()));
  }
  return tensor;
}

}  // namespace gemmd

#endif  // GEMMD_TESTS_CORE_QUANT_RANDOM_TENSOR_H_
