// What    Random layers and matrices for tests, and their exact products in double precision.
// Keys    Everything comes from the caller's generator: the same seed gives the same case.
#ifndef GEMMD_TESTS_KERNELS_RANDOM_LAYER_H_
#define GEMMD_TESTS_KERNELS_RANDOM_LAYER_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/quant/reference.h"
#include "core/quant/standard_tensor.h"

namespace gemmd::testing {

using Random = std::mt19937_64;

inline QuantSpec Spec(const NumberFormat& weight, const NumberFormat& scale, int64_t block_n,
                      int64_t block_k) {
  QuantSpec spec;
  spec.weight = weight;
  spec.scale = scale;
  spec.scale_block_n = block_n;
  spec.scale_block_k = block_k;
  return spec;
}

inline double Uniform(Random& random, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(random);
}

inline void SetNumber(const NumberFormat& format, Buffer& buffer, int64_t index, double value) {
  const uint32_t code = EncodeNumber(format, value);
  std::memcpy(buffer.data() + index * (format.bits / 8), &code, format.bits / 8);
}

template <typename T>
void SetValue(Buffer& buffer, int64_t index, T value) {
  std::memcpy(buffer.data() + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

// Writes code `index` of the row that starts at word `row_word`.
inline void SetCode(Buffer& codes, int64_t row_word, int bits, int64_t index, uint32_t code) {
  for (int bit = 0; bit < bits; ++bit) {
    const int64_t position = row_word * 32 + index * bits + bit;
    const auto mask = static_cast<std::byte>(1u << (position % 8));
    std::byte& byte = codes[static_cast<size_t>(position / 8)];
    byte = (code >> bit & 1) != 0 ? byte | mask : byte & ~mask;
  }
}

inline uint32_t RandomCode(const NumberFormat& format, Random& random) {
  if (format.bits > 8) return EncodeNumber(format, Uniform(random, -2, 2));
  for (;;) {
    const auto code = static_cast<uint32_t>(random() & ((1u << format.bits) - 1));
    if (std::isfinite(DecodeNumber(format, code))) return code;
  }
}

struct LayerOptions {
  bool integer_valued = false;  // scales 1 and 2, no fractions: every weight is a small integer
  int64_t scale_columns = 0;    // with a group index; 0 = spec.ScaleColumns(k)
};

inline double RandomScale(const NumberFormat& format, bool integer_valued, Random& random) {
  if (integer_valued) return random() % 2 == 0 ? 1.0 : 2.0;
  if (format.kind == NumberKind::kExponent)
    return std::ldexp(1.0, static_cast<int>(random() % 9) - 6);
  const double magnitude = Uniform(random, 0.05, 1.0);
  return random() % 8 == 0 ? -magnitude : magnitude;
}

inline void FillGrid(StandardTensor& tensor, const LayerOptions& options, Random& random) {
  const QuantSpec& spec = tensor.spec;
  const auto [experts, n, k] = tensor.shape;
  const int64_t cells = experts * spec.ScaleRows(n) * tensor.scale_columns;
  if (spec.scale.present()) tensor.scales.resize(static_cast<size_t>(cells * spec.scale.bits / 8));
  for (int64_t i = 0; spec.scale.present() && i < cells; ++i) {
    SetNumber(spec.scale, tensor.scales, i,
              RandomScale(spec.scale, options.integer_valued, random));
  }
  const int largest = spec.weight.kind == NumberKind::kInteger ? 1 << spec.weight.bits : 0;
  if (spec.zero_point == ZeroPointKind::kInteger) {
    tensor.zero_points.resize(static_cast<size_t>(cells) * 2);
    for (int64_t i = 0; i < cells; ++i) {
      SetValue<int16_t>(tensor.zero_points, i, static_cast<int16_t>(random() % (largest + 1)));
    }
  } else if (spec.zero_point == ZeroPointKind::kFloat) {
    tensor.zero_points.resize(static_cast<size_t>(cells) * 4);
    for (int64_t i = 0; i < cells; ++i) {
      const double value = options.integer_valued ? static_cast<double>(random() % (largest + 1))
                                                  : Uniform(random, 0, largest);
      SetValue<float>(tensor.zero_points, i, static_cast<float>(value));
    }
  }
}

inline bool EveryCodeIsFinite(const NumberFormat& format) {
  return format.bits <= 8 && format.special == SpecialValues::kNone;
}

// Random words; only the spare bits at the end of each row are 0.
inline void FillWithRandomWords(StandardTensor& tensor, Random& random) {
  const int64_t words = tensor.spec.RowWords(tensor.shape.k);
  const int64_t used = tensor.shape.k * tensor.spec.weight.bits % 32;
  const uint32_t last = used == 0 ? ~0u : (1u << used) - 1;
  for (int64_t i = 0; i < tensor.shape.experts * tensor.shape.n * words; ++i) {
    const auto word = static_cast<uint32_t>(random());
    SetValue<uint32_t>(tensor.codes, i, (i + 1) % words == 0 ? word & last : word);
  }
}

inline void FillCodes(StandardTensor& tensor, Random& random) {
  const auto [experts, n, k] = tensor.shape;
  const QuantSpec& spec = tensor.spec;
  tensor.codes.resize(static_cast<size_t>(experts * n * spec.RowWords(k) * 4));
  if (EveryCodeIsFinite(spec.weight)) return FillWithRandomWords(tensor, random);
  for (int64_t row = 0; row < experts * n; ++row) {
    for (int64_t i = 0; i < k; ++i) {
      SetCode(tensor.codes, row * spec.RowWords(k), spec.weight.bits, i,
              RandomCode(spec.weight, random));
    }
  }
}

inline StandardTensor RandomTensor(const QuantSpec& spec, const LayerShape& shape, Random& random,
                                   const LayerOptions& options = {}) {
  StandardTensor tensor;
  tensor.spec = spec;
  tensor.shape = shape;
  const auto [experts, n, k] = shape;
  tensor.scale_columns = options.scale_columns > 0 ? options.scale_columns : spec.ScaleColumns(k);
  FillCodes(tensor, random);
  FillGrid(tensor, options, random);
  if (spec.secondary_scale != SecondaryScaleKind::kNone) {
    const int64_t count =
        spec.secondary_scale == SecondaryScaleKind::kTensor ? experts : experts * n;
    tensor.secondary_scales.resize(static_cast<size_t>(count) * 4);
    for (int64_t i = 0; i < count; ++i) {
      const double value = options.integer_valued ? 1.0 : Uniform(random, 0.5, 2);
      SetValue<float>(tensor.secondary_scales, i, static_cast<float>(value));
    }
  }
  if (spec.has_group_index) {
    tensor.group_index.resize(static_cast<size_t>(experts * k) * 4);
    for (int64_t i = 0; i < experts * k; ++i) {
      SetValue<int32_t>(
          tensor.group_index, i,
          static_cast<int32_t>(random() % static_cast<uint64_t>(tensor.scale_columns)));
    }
  }
  if (spec.bias.present()) {
    tensor.bias.resize(static_cast<size_t>(experts * n * spec.bias.bits / 8));
    for (int64_t i = 0; i < experts * n; ++i) {
      const double value =
          options.integer_valued ? static_cast<double>(random() % 17) - 8 : Uniform(random, -4, 4);
      SetNumber(spec.bias, tensor.bias, i, value);
    }
  }
  if (spec.activation_scale == ActivationScaleKind::kStaticTensor) {
    tensor.activation_scale.resize(static_cast<size_t>(experts) * 4);
    for (int64_t i = 0; i < experts; ++i) SetValue<float>(tensor.activation_scale, i, 0.37f);
  }
  return tensor;
}

// A row-major host matrix of any element type; int8 elements are two's complement.
struct HostMatrix {
  NumberFormat type;
  bool is_signed_int = false;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_stride = 0;
  Buffer bytes;

  int element_bytes() const { return type.bits / 8; }

  double at(int64_t row, int64_t column) const {
    uint32_t code = 0;
    std::memcpy(&code, bytes.data() + (row * row_stride + column) * element_bytes(),
                static_cast<size_t>(element_bytes()));
    if (is_signed_int && type.bits == 8) return static_cast<int8_t>(code);
    if (is_signed_int) return static_cast<int32_t>(code);
    return DecodeNumber(type, code);
  }
  void set(int64_t row, int64_t column, double value) {
    const uint32_t code = is_signed_int ? static_cast<uint32_t>(static_cast<int32_t>(value))
                                        : EncodeNumber(type, value);
    std::memcpy(bytes.data() + (row * row_stride + column) * element_bytes(), &code,
                static_cast<size_t>(element_bytes()));
  }
  uint32_t bits_at(int64_t row, int64_t column) const {
    uint32_t code = 0;
    std::memcpy(&code, bytes.data() + (row * row_stride + column) * element_bytes(),
                static_cast<size_t>(element_bytes()));
    return code;
  }
};

// Every byte, gaps between rows included, is 0xff: a NaN in every float type.
inline HostMatrix PoisonedMatrix(const NumberFormat& type, int64_t rows, int64_t columns,
                                 int64_t row_stride = 0, bool is_signed_int = false) {
  HostMatrix matrix{type, is_signed_int, rows, columns, row_stride == 0 ? columns : row_stride, {}};
  matrix.bytes.assign(
      static_cast<size_t>(std::max<int64_t>(rows * matrix.row_stride, 1) * matrix.element_bytes()),
      std::byte{0xff});
  return matrix;
}

inline HostMatrix RandomMatrix(const NumberFormat& type, int64_t rows, int64_t columns,
                               Random& random, bool integer_valued = false,
                               int64_t row_stride = 0) {
  const bool is_int8 = type == kInt8;
  HostMatrix matrix = PoisonedMatrix(type, rows, columns, row_stride, is_int8);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const double value = integer_valued ? static_cast<double>(random() % 9) - 4
                           : is_int8      ? std::floor(Uniform(random, -127, 128))
                                          : Uniform(random, -2, 2);
      matrix.set(row, column, value);
    }
  }
  return matrix;
}

struct ExactSum {
  double value = 0;
  double magnitude = 0;  // sum of |terms|: what rounding errors are relative to
};

inline ExactSum ExactDot(const std::vector<double>& x, const std::vector<double>& w) {
  ExactSum sum;
  for (size_t i = 0; i < x.size(); ++i) {
    sum.value += x[i] * w[i];
    sum.magnitude += std::abs(x[i] * w[i]);
  }
  return sum;
}

inline std::vector<double> WeightRow(const StandardTensor& tensor, int64_t expert, int64_t row) {
  std::vector<double> weights(static_cast<size_t>(tensor.shape.k));
  DequantizeRow(tensor, expert, row, absl::MakeSpan(weights));
  return weights;
}

inline std::vector<double> MatrixRow(const HostMatrix& matrix, int64_t row) {
  std::vector<double> values(static_cast<size_t>(matrix.columns));
  for (int64_t i = 0; i < matrix.columns; ++i) values[static_cast<size_t>(i)] = matrix.at(row, i);
  return values;
}

// Largest error allowed between y and the exact sum. Weights and scaled activations keep 22 bits,
// each block_k is summed in the matrix unit (some 2^-22 of its magnitude) and K / 32 such sums are
// added in float32: errors of 2^-24 each, of random sign. 2^-19 of the sum of |terms| is far above
// what that gives and far below one wrong element. The output is rounded once: half a unit in the
// last place.
inline double Tolerance(const ExactSum& sum, const NumberFormat& out, int sum_bits = 19) {
  const double unit = std::ldexp(1.0, -(out.mantissa_bits + 1));
  const double smallest = std::ldexp(1.0, 1 - out.bias() - out.mantissa_bits);
  const double arithmetic = std::ldexp(sum.magnitude, -sum_bits);
  return arithmetic + unit * (std::abs(sum.value) + arithmetic) + smallest / 2;
}

}  // namespace gemmd::testing

#endif  // GEMMD_TESTS_KERNELS_RANDOM_LAYER_H_
