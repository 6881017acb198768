// What    Random StandardTensors and host matrices for tests. Values are small, so that sums stay
//         exact or nearly so; every tensor passes Validate.
#ifndef GEMMD_TESTS_SUPPORT_TENSORS_H_
#define GEMMD_TESTS_SUPPORT_TENSORS_H_

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "core/exec/device.h"
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

// A finite code of `format`.
inline uint32_t RandomCode(Random& random, const NumberFormat& format) {
  const auto mask = static_cast<int64_t>((uint64_t{1} << format.bits) - 1);
  while (true) {
    const auto code = static_cast<uint32_t>(Uniform(random, 0, mask));
    const double value = DecodeNumber(format, code);
    if (std::isfinite(value) && std::abs(value) < 1024) return code;
  }
}

inline Buffer RandomCodes(Random& random, const QuantSpec& spec, const LayerShape& shape) {
  const int64_t words = spec.RowWords(shape.k);
  std::vector<uint32_t> codes(static_cast<size_t>(shape.experts * shape.n * words));
  for (int64_t row = 0; row < shape.experts * shape.n; ++row) {
    uint32_t* out = codes.data() + row * words;
    for (int64_t k = 0; k < shape.k; ++k) {
      const uint32_t code = RandomCode(random, spec.weight);
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

// Powers of two from 1/4 to 2: products stay exact in double.
inline double RandomScale(Random& random) {
  return std::ldexp(1.0, static_cast<int>(Uniform(random, -2, 1)));
}

inline StandardTensor RandomTensor(const QuantSpec& spec, const LayerShape& shape, uint64_t seed) {
  Random random(seed);
  StandardTensor tensor;
  tensor.spec = spec;
  tensor.shape = shape;
  tensor.scale_columns = spec.ScaleColumns(shape.k);
  tensor.codes = RandomCodes(random, spec, shape);
  const int64_t grid = shape.experts * spec.ScaleRows(shape.n) * tensor.scale_columns;
  for (int64_t i = 0; i < grid; ++i) {
    if (spec.scale.present()) AppendNumber(tensor.scales, spec.scale, RandomScale(random));
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
    Append(tensor.secondary_scales, static_cast<float>(RandomScale(random)));
  }
  for (int64_t i = 0; spec.has_group_index && i < shape.experts * shape.k; ++i) {
    Append(tensor.group_index, static_cast<int32_t>(Uniform(random, 0, tensor.scale_columns - 1)));
  }
  for (int64_t i = 0; spec.bias.present() && i < shape.experts * shape.n; ++i) {
    AppendNumber(tensor.bias, spec.bias, static_cast<double>(Uniform(random, -8, 8)) / 4);
  }
  for (int64_t i = 0;
       spec.activation_scale == ActivationScaleKind::kStaticTensor && i < shape.experts; ++i) {
    Append(tensor.activation_scale, 0.25f);
  }
  return tensor;
}

inline QuantSpec Int4Spec(int64_t group = 32) {
  QuantSpec spec;
  spec.weight = IntegerFormat(4);
  spec.scale = kFloat16;
  spec.scale_block_k = group;
  return spec;
}

// A row-major matrix in host memory with `padding` unused elements after each row.
class HostMatrix {
 public:
  HostMatrix(const NumberFormat& type, int64_t rows, int64_t columns, int64_t padding = 0)
      : type_(type), rows_(rows), columns_(columns), stride_(columns + padding) {
    bytes_.assign(static_cast<size_t>(rows * stride_ * type.bits / 8 + 64), std::byte{0xa5});
  }

  MatrixView view() {
    MatrixView view;
    view.address = reinterpret_cast<uintptr_t>(bytes_.data());
    view.type = type_;
    view.is_signed_int = type_.kind == NumberKind::kInteger;
    view.rows = rows_;
    view.columns = columns_;
    view.row_stride = stride_;
    return view;
  }

  void SetCode(int64_t row, int64_t column, uint32_t code) {
    std::memcpy(At(row, column), &code, static_cast<size_t>(type_.bits / 8));
  }
  uint32_t Code(int64_t row, int64_t column) {
    uint32_t code = 0;
    std::memcpy(&code, At(row, column), static_cast<size_t>(type_.bits / 8));
    return code;
  }
  void Set(int64_t row, int64_t column, double value) {
    const bool integer = type_.kind == NumberKind::kInteger;
    SetCode(
        row, column,
        integer ? static_cast<uint32_t>(static_cast<int32_t>(value)) : EncodeNumber(type_, value));
  }
  double Get(int64_t row, int64_t column) {
    const uint32_t code = Code(row, column);
    if (type_.kind != NumberKind::kInteger) return DecodeNumber(type_, code);
    return type_.bits == 8 ? static_cast<int8_t>(code) : static_cast<int32_t>(code);
  }
  void Fill(const std::function<double(int64_t, int64_t)>& value) {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < columns_; ++c) Set(r, c, value(r, c));
    }
  }
  void FillRandom(Random& random) {
    Fill([&](int64_t, int64_t) { return static_cast<double>(Uniform(random, -16, 16)) / 8; });
  }
  void FillIntegers(Random& random) {
    Fill([&](int64_t, int64_t) { return static_cast<double>(Uniform(random, -4, 4)); });
  }

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::byte* At(int64_t row, int64_t column) {
    return bytes_.data() + (row * stride_ + column) * type_.bits / 8;
  }

  const NumberFormat type_;
  const int64_t rows_;
  const int64_t columns_;
  const int64_t stride_;
  std::vector<std::byte> bytes_;
};

}  // namespace gemmd::testing

#endif  // GEMMD_TESTS_SUPPORT_TENSORS_H_
