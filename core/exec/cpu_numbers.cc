#include "core/exec/cpu_numbers.h"

#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/quant/reference.h"

namespace gemmd {
namespace {

template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <typename T>
void ReadIntegers(const std::byte* from, int64_t count, double* out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<double>(Load<T>(from + i * static_cast<int64_t>(sizeof(T))));
  }
}

void ReadFloat32(const std::byte* from, int64_t count, double* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<double>(Load<float>(from + 4 * i));
}

// bf16 is the upper half of a float32.
void ReadBFloat16(const std::byte* from, int64_t count, double* out) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = static_cast<uint32_t>(Load<uint16_t>(from + 2 * i)) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    out[i] = static_cast<double>(value);
  }
}

// All 65536 values, because a request decodes millions of them.
const double* Float16Table() {
  static const auto* table = [] {
    auto* values = new std::array<double, 65536>;
    for (uint32_t code = 0; code < 65536; ++code) {
      (*values)[code] = DecodeNumber(kFloat16, code);
    }
    return values;
  }();
  return table->data();
}

void ReadFloat16(const std::byte* from, int64_t count, double* out) {
  const double* table = Float16Table();
  for (int64_t i = 0; i < count; ++i) out[i] = table[Load<uint16_t>(from + 2 * i)];
}

void ReadFloat8(const NumberFormat& type, const std::byte* from, int64_t count, double* out) {
  std::array<double, 256> table;
  for (uint32_t code = 0; code < 256; ++code) table[code] = DecodeNumber(type, code);
  for (int64_t i = 0; i < count; ++i) out[i] = table[static_cast<uint8_t>(from[i])];
}

const std::byte* ElementAt(const MatrixView& matrix, int64_t row, int64_t column) {
  return reinterpret_cast<const std::byte*>(matrix.address) +
         (row * matrix.row_stride + column) * ElementBytes(matrix.type);
}

// Bits of an IEEE type of 1 + exponent_bits + mantissa_bits, rounded to nearest even from double.
uint32_t RoundBits(double value, int exponent_bits, int mantissa_bits) {
  const uint64_t bits = [value] {
    uint64_t raw;
    std::memcpy(&raw, &value, sizeof(raw));
    return raw;
  }();
  const uint32_t sign = static_cast<uint32_t>(bits >> 63) << (exponent_bits + mantissa_bits);
  const int exponent_field = static_cast<int>((bits >> 52) & 0x7ff);
  const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
  const uint32_t infinity = ((1u << exponent_bits) - 1) << mantissa_bits;
  if (exponent_field == 0x7ff) {
    return sign | infinity | (fraction != 0 ? 1u << (mantissa_bits - 1) : 0u);
  }
  if (exponent_field == 0) return sign;  // a double's subnormal is far below half of our smallest
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = exponent_field - 1023;
  const int smallest = 1 - bias;
  const bool subnormal = exponent < smallest;
  const int shift = 52 - mantissa_bits + (subnormal ? smallest - exponent : 0);
  if (shift > 53) return sign;  // below half of the smallest subnormal
  const uint64_t significand = fraction | (uint64_t{1} << 52);
  uint64_t kept = significand >> shift;
  const uint64_t rest = significand & ((uint64_t{1} << shift) - 1);
  const uint64_t half = uint64_t{1} << (shift - 1);
  if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  // A carry out of the mantissa raises the exponent field by itself.
  const int64_t code = subnormal ? static_cast<int64_t>(kept)
                                 : (static_cast<int64_t>(exponent + bias - 1) << mantissa_bits) +
                                       static_cast<int64_t>(kept);
  return sign | (code >= infinity ? infinity : static_cast<uint32_t>(code));
}

}  // namespace

std::string FormatName(const NumberFormat& type) {
  if (!type.present()) return "none";
  if (type == kFloat32) return "float32";
  if (type == kFloat16) return "float16";
  if (type == kBFloat16) return "bfloat16";
  if (type.kind == NumberKind::kInteger) return absl::StrCat("int", static_cast<int>(type.bits));
  if (type.kind == NumberKind::kExponent) return "e8m0";
  return absl::StrCat("e", static_cast<int>(type.exponent_bits), "m",
                      static_cast<int>(type.mantissa_bits));
}

void ReadRow(const MatrixView& matrix, int64_t row, double* out) {
  const std::byte* from = ElementAt(matrix, row, 0);
  const NumberFormat& type = matrix.type;
  if (type.kind == NumberKind::kInteger) {
    if (type.bits == 8) return ReadIntegers<int8_t>(from, matrix.columns, out);
    if (type.bits == 32) return ReadIntegers<int32_t>(from, matrix.columns, out);
    return ReadIntegers<int64_t>(from, matrix.columns, out);
  }
  if (type == kFloat32) return ReadFloat32(from, matrix.columns, out);
  if (type == kFloat16) return ReadFloat16(from, matrix.columns, out);
  if (type == kBFloat16) return ReadBFloat16(from, matrix.columns, out);
  ReadFloat8(type, from, matrix.columns, out);
}

int32_t ReadInt32(const MatrixView& matrix, int64_t row, int64_t column) {
  return Load<int32_t>(ElementAt(matrix, row, column));
}

void WriteRow(const MatrixView& matrix, int64_t row, int64_t column, const double* values,
              int64_t count) {
  auto* to = const_cast<std::byte*>(ElementAt(matrix, row, column));
  if (matrix.type == kFloat32) {
    for (int64_t i = 0; i < count; ++i) {
      const float rounded = static_cast<float>(values[i]);
      std::memcpy(to + 4 * i, &rounded, sizeof(rounded));
    }
    return;
  }
  const int exponent_bits = matrix.type.exponent_bits;
  const int mantissa_bits = matrix.type.mantissa_bits;
  for (int64_t i = 0; i < count; ++i) {
    const auto code = static_cast<uint16_t>(RoundBits(values[i], exponent_bits, mantissa_bits));
    std::memcpy(to + 2 * i, &code, sizeof(code));
  }
}

double RoundTo(const NumberFormat& type, double value) {
  if (type == kFloat32) return static_cast<double>(static_cast<float>(value));
  const uint32_t code = RoundBits(value, type.exponent_bits, type.mantissa_bits);
  if (type == kFloat16) return Float16Table()[code];
  const uint32_t bits = code << 16;
  float rounded;
  std::memcpy(&rounded, &bits, sizeof(rounded));
  return static_cast<double>(rounded);
}

}  // namespace gemmd
