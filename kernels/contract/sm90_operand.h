// What    How codes of one format become elements of the matrix instruction's register operand.
//           f16 x          code - zero point, or the float itself, exact in x's type
//           bf16 x         the same; integers times 2^kRaisedExponent
//           e4m3, e5m2 x   an 8-bit float (e5m2 for weights of 5 exponent bits, else e4m3); of integers its code is
//                          their magnitude, times 2 where the sign is packed lowest
//           int8 x         two's complement
//         8-bit operands hold weight * 2^-DebtExponent; the debt is paid with the row's factor.
// Who     Packing, selection and the decode parts of device/.
// Source  e4m3's codes 0 to 15 are 0 to 15 times 2^-9, subnormals and the first normals alike, and bfloat16's 0 to
//         255 are 0 to 255 times 2^-133: bits of an integer are that number already.
#ifndef GEMMD_KERNELS_CONTRACT_SM90_OPERAND_H_
#define GEMMD_KERNELS_CONTRACT_SM90_OPERAND_H_

#include <cstdint>

#include "kernels/contract/element_type.h"
#include "kernels/contract/number_format.h"

namespace gemmd {

struct Sm90Operand {
  NumberFormat weight;
  ElementType x_type;

  constexpr bool is_wide() const {
    return x_type == ElementType::kBFloat16 || x_type == ElementType::kFloat16;
  }
  constexpr bool is_int8() const { return x_type == ElementType::kInt8; }
  constexpr bool is_float8() const { return !is_wide() && !is_int8(); }
  constexpr int bits() const { return is_wide() ? 16 : 8; }

  // The operand of 8-bit floats.
  constexpr bool is_e5m2() const { return is_float8() && weight.exponent_bits == 5; }
  constexpr int mantissa_bits() const {
    return x_type == ElementType::kBFloat16  ? 7
           : x_type == ElementType::kFloat16 ? 10
           : is_e5m2()                       ? 2
                                             : 3;
  }
  constexpr int bias() const {
    return x_type == ElementType::kBFloat16 ? 127 : is_e5m2() || is_wide() ? 15 : 7;
  }

  constexpr bool is_integer_weight() const { return weight.kind == NumberKind::kInteger; }
  // Sign and magnitude.
  constexpr bool is_sign_magnitude() const {
    return weight.kind == NumberKind::kFloat && weight.exponent_bits == 0;
  }
  // Integers that are bfloat16's smallest numbers, raised by one multiplication. Its largest power of two leaves this
  // debt, which the kernel pays with the row's factor.
  static constexpr int kRaisedExponent = 127 - 133;
  constexpr bool is_raised() const {
    return x_type == ElementType::kBFloat16 && is_integer_weight() && weight.bits <= 8;
  }
  // 4-bit integers in 8-bit floats: sign and magnitude out of one multiplication (contract/code_map.h).
  constexpr bool has_signs_lowest() const {
    return is_float8() && is_integer_weight() && weight.bits == 4;
  }
  // Up to 16 operands, looked up: 8-bit operands but for those of most integers.
  constexpr bool by_table() const {
    return !is_wide() && weight.bits <= 4 && !(is_int8() && is_integer_weight()) &&
           !has_signs_lowest();
  }
  // Looked up by magnitude alone; the sign is put beside. In 16-bit operands e2m1's bits lie where bfloat16 has them.
  constexpr bool has_signs_apart() const {
    if (is_wide()) return weight == kFloat4E2M1;
    return by_table() && is_float8() && !is_integer_weight() && weight.bits == 4;
  }
  // e8m0 group scales that go into the exponent of e4m3 operands.
  constexpr bool can_fold(const NumberFormat& scale) const {
    return is_float8() && weight == kFloat4E2M1 && scale == kFloat8E8M0;
  }
  // Powers of two that folded scales of one row span, and the debt of a row whose largest scale is 1:
  // e2m1's numbers times 2^-5 to 2^6 are normal e4m3 numbers.
  static constexpr int kFoldedSteps = 11;
  static constexpr int kFoldedDebt = -6;
  // Operand of an e2m1 magnitude under the smallest folded scale; a step adds 8, but to 0.
  static constexpr uint32_t FoldedEntry(uint32_t magnitude) {
    if (magnitude < 2) return magnitude * 8;
    return (magnitude / 2 + 1) << 3 | (magnitude & 1) << 2;
  }
  // Raised integers whose group scales, relative to their row's, go into the one instruction that decodes them.
  // Factors of many sets of scales would take too many registers.
  constexpr bool can_fuse(bool has_zero_points, int scale_sets) const {
    return is_raised() && !has_zero_points && scale_sets <= 4;
  }
  // Integers packed in two's complement, so that the upper bits of an int8 are the number.
  constexpr bool is_top_aligned(bool has_zero_points) const {
    return is_int8() && is_integer_weight() && !has_zero_points;
  }

  constexpr int DebtExponent(bool has_zero_points) const {
    if (is_wide()) return 0;
    if (is_int8())
      return is_top_aligned(has_zero_points) ? weight.bits - 8 : is_integer_weight() ? 0 : -1;
    if (has_signs_lowest()) return 8;
    if (is_integer_weight() || is_sign_magnitude()) return 9;
    return bias() - weight.bias();
  }

  // Operand of `code`, for by_table().
  constexpr uint32_t TableEntry(uint32_t code) const {
    const uint32_t half = 1u << (weight.bits - 1);
    if (is_integer_weight()) {
      return code >= half ? code - half : 0x80u | (half - code);
    }
    const bool is_negative = (code & half) != 0;
    const uint32_t magnitude = code & (half - 1);
    if (is_int8()) {  // e2m1, doubled
      const uint32_t doubled =
          magnitude < 4 ? magnitude : (2 + (magnitude & 1)) << (magnitude / 2 - 1);
      return is_negative ? (0u - doubled) & 0xffu : doubled;
    }
    const int shift = is_sign_magnitude() ? 0 : mantissa_bits() - weight.mantissa_bits;
    return (is_negative ? 0x80u : 0u) | magnitude << shift;
  }
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_CONTRACT_SM90_OPERAND_H_
