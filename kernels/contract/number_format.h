// What    NumberFormat: how the bits of one code stand for a number.
// Who     Host code on both sides of the kernels; device code sees its fields as template
// constants. Source  OCP MX 1.0 (e2m1, e2m3, e3m2, e8m0), OFP8 (e4m3, e5m2), IEEE 754 (f16, f32).
#ifndef GEMMD_KERNELS_CONTRACT_NUMBER_FORMAT_H_
#define GEMMD_KERNELS_CONTRACT_NUMBER_FORMAT_H_

#include <cstdint>

namespace gemmd {

enum class NumberKind : uint8_t {
  kNone,      // the tensor is absent
  kInteger,   // unsigned code; value = code - zero point, 2^(bits-1) when there is none
  kFloat,     // sign, exponent, mantissa; exponent_bits 0 = sign and magnitude
  kExponent,  // 2^(code - 127), unsigned (e8m0)
};

enum class SpecialValues : uint8_t {
  kNone,     // every code is finite
  kNanOnly,  // the all-ones code (either sign) is NaN, no infinity
  kIeee,     // the all-ones exponent holds infinities and NaNs
};

struct NumberFormat {
  NumberKind kind = NumberKind::kNone;
  uint8_t bits = 0;
  uint8_t exponent_bits = 0;
  uint8_t mantissa_bits = 0;
  SpecialValues special = SpecialValues::kNone;

  friend constexpr bool operator==(const NumberFormat&, const NumberFormat&) = default;
  constexpr bool present() const { return kind != NumberKind::kNone; }
  // Exponent bias of a float: 2^(exponent_bits - 1) - 1; with exponent_bits 0 the magnitude is an
  // integer.
  constexpr int bias() const { return exponent_bits == 0 ? 0 : (1 << (exponent_bits - 1)) - 1; }
};

constexpr NumberFormat IntegerFormat(int bits) {
  return {NumberKind::kInteger, static_cast<uint8_t>(bits), 0, 0, SpecialValues::kNone};
}
constexpr NumberFormat FloatFormat(int exponent_bits, int mantissa_bits,
                                   SpecialValues special = SpecialValues::kNone) {
  return {NumberKind::kFloat, static_cast<uint8_t>(1 + exponent_bits + mantissa_bits),
          static_cast<uint8_t>(exponent_bits), static_cast<uint8_t>(mantissa_bits), special};
}

inline constexpr NumberFormat kNoFormat{};
inline constexpr NumberFormat kFloat32 = FloatFormat(8, 23, SpecialValues::kIeee);
inline constexpr NumberFormat kFloat16 = FloatFormat(5, 10, SpecialValues::kIeee);
inline constexpr NumberFormat kBFloat16 = FloatFormat(8, 7, SpecialValues::kIeee);
inline constexpr NumberFormat kFloat8E4M3 = FloatFormat(4, 3, SpecialValues::kNanOnly);
inline constexpr NumberFormat kFloat8E5M2 = FloatFormat(5, 2, SpecialValues::kIeee);
inline constexpr NumberFormat kFloat4E2M1 = FloatFormat(2, 1);
inline constexpr NumberFormat kFloat8E8M0{NumberKind::kExponent, 8, 8, 0, SpecialValues::kNanOnly};
// Two's complement elements of activations: int8 in DATA_TYPE_INT8 buffers. Weights never use it:
// their integers are unsigned codes.
inline constexpr NumberFormat kInt8{NumberKind::kInteger, 8, 0, 0, SpecialValues::kNone};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_CONTRACT_NUMBER_FORMAT_H_
