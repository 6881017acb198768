#include "core/quant/reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/quant/bit_row.h"

namespace gemmd {
namespace {

uint32_t LowBits(int bits) { return bits >= 32 ? ~0u : (1u << bits) - 1; }

// Largest magnitude code (the code without its sign bit) that is a finite number.
uint32_t LargestFiniteMagnitude(const NumberFormat& format) {
  const uint32_t all_ones = LowBits(format.bits - 1);
  switch (format.special) {
    case SpecialValues::kNone:
      return all_ones;
    case SpecialValues::kNanOnly:
      return all_ones - 1;
    case SpecialValues::kIeee:
      return (LowBits(format.exponent_bits) << format.mantissa_bits) - 1;
  }
  return all_ones;
}

double DecodeFloat(const NumberFormat& format, uint32_t code) {
  const uint32_t magnitude = code & LowBits(format.bits - 1);
  const double sign = (code >> (format.bits - 1)) != 0 ? -1 : 1;
  if (magnitude > LargestFiniteMagnitude(format)) {
    const bool infinite =
        format.special == SpecialValues::kIeee && (magnitude & LowBits(format.mantissa_bits)) == 0;
    return infinite ? sign * std::numeric_limits<double>::infinity()
                    : std::numeric_limits<double>::quiet_NaN();
  }
  if (format.exponent_bits == 0) return sign * magnitude;
  const int exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const double fraction = magnitude & LowBits(format.mantissa_bits);
  const double significand = exponent == 0 ? fraction : fraction + (1u << format.mantissa_bits);
  return sign *
         std::ldexp(significand, std::max(exponent, 1) - format.bias() - format.mantissa_bits);
}

double DecodeExponent(const NumberFormat& format, uint32_t code) {
  if (format.special != SpecialValues::kNone && code == LowBits(format.bits)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return std::ldexp(1.0, static_cast<int>(code) - format.bias());
}

// The magnitude code of a positive finite `value`, before saturation. Codes of one format are
// ordered as their values and evenly spaced between powers of two, so a mantissa that rounds up
// carries into the exponent by itself.
uint64_t RoundMagnitude(const NumberFormat& format, double value) {
  if (format.exponent_bits == 0)
    return static_cast<uint64_t>(std::nearbyint(std::min(value, 0x1p40)));
  const int smallest_exponent = 1 - format.bias();
  const int exponent =
      std::max(value == 0 ? smallest_exponent : std::ilogb(value), smallest_exponent);
  const double steps = std::nearbyint(std::ldexp(value, format.mantissa_bits - exponent));
  return (static_cast<uint64_t>(exponent - smallest_exponent) << format.mantissa_bits) +
         static_cast<uint64_t>(steps);
}

uint32_t EncodeFloat(const NumberFormat& format, double value) {
  const uint32_t sign = std::signbit(value) ? 1u << (format.bits - 1) : 0;
  if (std::isnan(value)) {
    if (format.special == SpecialValues::kNone) return 0;
    if (format.special == SpecialValues::kNanOnly) return LowBits(format.bits - 1);
    // Quiet: the top mantissa bit is set.
    return LargestFiniteMagnitude(format) + 1 + (1u << (format.mantissa_bits - 1));
  }
  const uint32_t largest = LargestFiniteMagnitude(format);
  const bool keeps_infinity = format.special == SpecialValues::kIeee && format.bits >= 16;
  const uint32_t overflow = keeps_infinity ? largest + 1 : largest;
  if (std::isinf(value)) return sign | overflow;
  const uint64_t magnitude = RoundMagnitude(format, std::abs(value));
  return sign | (magnitude > largest ? overflow : static_cast<uint32_t>(magnitude));
}

uint32_t EncodeExponent(const NumberFormat& format, double value) {
  const uint32_t all_ones = LowBits(format.bits);
  const bool has_nan = format.special != SpecialValues::kNone;
  if (std::isnan(value)) return has_nan ? all_ones : 0;
  const uint32_t largest = has_nan ? all_ones - 1 : all_ones;
  if (!(value > 0)) return 0;  // no code for 0 or a negative value: the smallest
  if (std::isinf(value)) return largest;
  int exponent;
  const double fraction = 2 * std::frexp(value, &exponent);  // in [1, 2)
  --exponent;
  const int64_t code = static_cast<int64_t>(exponent) + format.bias();
  return static_cast<uint32_t>(std::clamp<int64_t>(code + (fraction >= 1.5), 0, largest));
}

uint32_t EncodeInteger(const NumberFormat& format, double value) {
  if (!(value > 0)) return 0;
  return static_cast<uint32_t>(std::min<double>(std::nearbyint(value), LowBits(format.bits)));
}

template <typename T>
T Load(const Buffer& buffer, int64_t index) {
  T value;
  std::memcpy(&value, buffer.data() + index * sizeof(T), sizeof(T));
  return value;
}

// Every value of a 16-bit float, exact in float32.
std::vector<float> Values16(const NumberFormat& format) {
  std::vector<float> values(1 << 16);
  for (uint32_t code = 0; code < values.size(); ++code) {
    values[code] = static_cast<float>(DecodeNumber(format, code));
  }
  return values;
}

// The table of kFloat16 or kBFloat16.
const std::vector<float>& Table16(const NumberFormat& format) {
  static const auto* const kFloat16Values = new std::vector<float>(Values16(kFloat16));
  static const auto* const kBFloat16Values = new std::vector<float>(Values16(kBFloat16));
  return format == kFloat16 ? *kFloat16Values : *kBFloat16Values;
}

// Element `index` of a buffer of numbers of 8, 16 or 32 bits.
double LoadNumber(const NumberFormat& format, const Buffer& buffer, int64_t index) {
  switch (format.bits) {
    case 8:
      return DecodeNumber(format, Load<uint8_t>(buffer, index));
    case 16:
      return Table16(format)[Load<uint16_t>(buffer, index)];
    default:
      return Load<float>(buffer, index);
  }
}

// What multiplies and what is taken off, for every scale column of one row.
struct RowScaling {
  std::vector<double> factor;
  std::vector<double> zero_point;
};

double SecondaryScale(const StandardTensor& tensor, int64_t expert, int64_t row) {
  switch (tensor.spec.secondary_scale) {
    case SecondaryScaleKind::kNone:
      return 1;
    case SecondaryScaleKind::kTensor:
      return Load<float>(tensor.secondary_scales, expert);
    case SecondaryScaleKind::kChannel:
      return Load<float>(tensor.secondary_scales, expert * tensor.shape.n + row);
  }
  return 1;
}

double ZeroPoint(const StandardTensor& tensor, int64_t grid_index) {
  switch (tensor.spec.zero_point) {
    case ZeroPointKind::kNone:
      break;
    case ZeroPointKind::kInteger:
      return Load<int16_t>(tensor.zero_points, grid_index);
    case ZeroPointKind::kFloat:
      return Load<float>(tensor.zero_points, grid_index);
  }
  return tensor.spec.weight.kind == NumberKind::kInteger ? 1 << (tensor.spec.weight.bits - 1) : 0;
}

// `round_factor` gives fl32(scale * secondary), as exporters compute it.
RowScaling ScalingOf(const StandardTensor& tensor, int64_t expert, int64_t row, bool round_factor) {
  const QuantSpec& spec = tensor.spec;
  const int64_t grid_row = spec.scale_block_n == 0 ? 0 : row / spec.scale_block_n;
  const int64_t first = (expert * spec.ScaleRows(tensor.shape.n) + grid_row) * tensor.scale_columns;
  const double secondary = SecondaryScale(tensor, expert, row);
  RowScaling scaling;
  scaling.factor.resize(tensor.scale_columns);
  scaling.zero_point.resize(tensor.scale_columns);
  for (int64_t column = 0; column < tensor.scale_columns; ++column) {
    const double scale =
        spec.scale.present() ? LoadNumber(spec.scale, tensor.scales, first + column) : 1.0;
    const double factor = scale * secondary;
    scaling.factor[column] = round_factor ? static_cast<float>(factor) : factor;
    scaling.zero_point[column] = ZeroPoint(tensor, first + column);
  }
  return scaling;
}

using ValueTable = std::array<double, 256>;

// Value of every code of `format` (at most 8 bits). Rebuilt only when a thread changes formats.
const ValueTable& ValuesOf(const NumberFormat& format) {
  thread_local NumberFormat cached_format;
  thread_local ValueTable table;
  if (!(cached_format == format)) {
    for (uint32_t code = 0; code < (1u << format.bits); ++code) {
      table[code] = DecodeNumber(format, code);
    }
    cached_format = format;
  }
  return table;
}

// The values of a row's codes, zero points not taken off.
void DecodeRow(const StandardTensor& tensor, int64_t expert, int64_t row,
               absl::Span<double> values) {
  const NumberFormat& format = tensor.spec.weight;
  const std::byte* codes = tensor.codes.data() + (expert * tensor.shape.n + row) *
                                                     tensor.spec.RowWords(tensor.shape.k) * 4;
  if (format.bits <= 8) {
    const ValueTable& table = ValuesOf(format);
    std::vector<uint8_t> unpacked(values.size());
    UnpackBitRow(codes, format.bits, absl::MakeSpan(unpacked));
    for (size_t k = 0; k < values.size(); ++k) values[k] = table[unpacked[k]];
  } else if (format == kFloat32) {
    for (size_t k = 0; k < values.size(); ++k) {
      float value;
      std::memcpy(&value, codes + k * sizeof(value), sizeof(value));
      values[k] = value;
    }
  } else {
    const std::vector<float>& table = Table16(format);
    for (size_t k = 0; k < values.size(); ++k) {
      uint16_t code;
      std::memcpy(&code, codes + k * sizeof(code), sizeof(code));
      values[k] = table[code];
    }
  }
}

template <typename Out>
void Scale(absl::Span<const double> values, double zero_point, double factor, Out* out) {
  for (size_t i = 0; i < values.size(); ++i) {
    out[i] = static_cast<Out>((values[i] - zero_point) * factor);
  }
}

// (value - zero point) and its product with a float32 factor are exact in double precision for
// every format we know, so the conversion to Out is the only rounding.
template <typename Out>
void Dequantize(const StandardTensor& tensor, int64_t expert, int64_t row, bool round_factor,
                absl::Span<Out> out) {
  const RowScaling scaling = ScalingOf(tensor, expert, row, round_factor);
  std::vector<double> values(out.size());
  DecodeRow(tensor, expert, row, absl::MakeSpan(values));
  const int64_t k = tensor.shape.k;
  if (tensor.spec.has_group_index) {
    for (int64_t i = 0; i < k; ++i) {
      const int32_t group = Load<int32_t>(tensor.group_index, expert * k + i);
      out[i] = static_cast<Out>((values[i] - scaling.zero_point[group]) * scaling.factor[group]);
    }
    return;
  }
  const int64_t block = tensor.spec.scale_block_k == 0 ? k : tensor.spec.scale_block_k;
  for (int64_t first = 0, column = 0; first < k; first += block, ++column) {
    const absl::Span<const double> group =
        absl::MakeConstSpan(values).subspan(first, std::min(block, k - first));
    Scale(group, scaling.zero_point[column], scaling.factor[column], out.data() + first);
  }
}

}  // namespace

double DecodeNumber(const NumberFormat& format, uint32_t code) {
  code &= LowBits(format.bits);
  switch (format.kind) {
    case NumberKind::kNone:
      return 0;
    case NumberKind::kInteger:
      return code;
    case NumberKind::kFloat:
      return DecodeFloat(format, code);
    case NumberKind::kExponent:
      return DecodeExponent(format, code);
  }
  return 0;
}

uint32_t EncodeNumber(const NumberFormat& format, double value) {
  switch (format.kind) {
    case NumberKind::kNone:
      return 0;
    case NumberKind::kInteger:
      return EncodeInteger(format, value);
    case NumberKind::kFloat:
      return EncodeFloat(format, value);
    case NumberKind::kExponent:
      return EncodeExponent(format, value);
  }
  return 0;
}

void DequantizeRow(const StandardTensor& tensor, int64_t expert, int64_t row,
                   absl::Span<double> out) {
  Dequantize(tensor, expert, row, /*round_factor=*/false, out);
}

void DequantizeRowFloat32(const StandardTensor& tensor, int64_t expert, int64_t row,
                          absl::Span<float> out) {
  Dequantize(tensor, expert, row, /*round_factor=*/true, out);
}

void UnquantizedRow(const StandardTensor& tensor, int64_t expert, int64_t row, absl::Span<float> out) {
  const NumberFormat& format = tensor.spec.weight;
  const std::byte* codes = tensor.codes.data() + (expert * tensor.shape.n + row) *
                                                     tensor.spec.RowWords(tensor.shape.k) * 4;
  if (format == kFloat32) {
    std::memcpy(out.data(), codes, out.size() * sizeof(float));
    return;
  }
  const float* const table = Table16(format).data();
  for (size_t k = 0; k < out.size(); ++k) {
    uint16_t code;
    std::memcpy(&code, codes + k * sizeof(code), sizeof(code));
    out[k] = table[code];
  }
}

double Bias(const StandardTensor& tensor, int64_t expert, int64_t row) {
  if (!tensor.spec.bias.present()) return 0;
  return LoadNumber(tensor.spec.bias, tensor.bias, expert * tensor.shape.n + row);
}

}  // namespace gemmd
