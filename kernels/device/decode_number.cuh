// What    The value of one code of a NumberFormat, exact in float32.
//         Integers give the unsigned code itself: the zero point is not taken off.
// Errors  Formats of more than 8 exponent bits do not compile.
// Sync    None: registers only.
// Source  kernels/contract/number_format.h.
#ifndef GEMMD_KERNELS_DEVICE_DECODE_NUMBER_CUH_
#define GEMMD_KERNELS_DEVICE_DECODE_NUMBER_CUH_

#include "kernels/contract/number_format.h"
#include "kernels/device/portable.cuh"

namespace gemmd::device {

// 2^-exponent.
constexpr float PowerOfHalf(int exponent) {
  float value = 1;
  for (int i = 0; i < exponent; ++i) value *= 0.5f;
  return value;
}

template <NumberFormat kFormat>
struct NumberDecoder {
  static_assert(kFormat.exponent_bits <= 8 && kFormat.mantissa_bits <= 23,
                "the format does not fit into float32");

  __host__ __device__ static float Decode(uint32_t code) {
    if constexpr (kFormat.kind == NumberKind::kInteger) {
      return static_cast<float>(code);
    } else if constexpr (kFormat.kind == NumberKind::kExponent) {
      return DecodeExponent(code);
    } else {
      return DecodeFloat(code);
    }
  }

 private:
  static constexpr int kMantissaBits = kFormat.mantissa_bits;
  static constexpr int kExponentBits = kFormat.exponent_bits;
  static constexpr uint32_t kAllOnes = LowBits(kFormat.bits - 1);  // without the sign

  static constexpr int kBias = kFormat.bias();
  static constexpr float kSubnormalStep =
      kExponentBits == 0 ? 1.0f : PowerOfHalf(kBias - 1 + kMantissaBits);

  __host__ __device__ static float DecodeExponent(uint32_t code) {
    constexpr int kRebias = 127 - kBias;
    if (kFormat.special != SpecialValues::kNone && code == LowBits(kFormat.bits)) {
      return FloatOf(kFloatQuietNan);
    }
    const uint32_t exponent = code + kRebias;
    return exponent == 0 ? FloatOf(0x00400000u) : FloatOf(exponent << 23);
  }

  __host__ __device__ static float DecodeFloat(uint32_t code) {
    const uint32_t sign = (code >> (kFormat.bits - 1)) << 31;
    const uint32_t magnitude = code & kAllOnes;
    return FloatOf(sign | BitsOf(DecodeMagnitude(magnitude)));
  }

  __host__ __device__ static float DecodeMagnitude(uint32_t magnitude) {
    if constexpr (kFormat.special == SpecialValues::kNanOnly) {
      if (magnitude == kAllOnes) return FloatOf(kFloatQuietNan);
    }
    if constexpr (kExponentBits == 0) {
      return static_cast<float>(magnitude);
    } else if constexpr (kExponentBits == 8) {
      // float32's own exponent: subnormals and special values keep their bits.
      return FloatOf(magnitude << (23 - kMantissaBits));
    } else {
      return DecodeNarrowMagnitude(magnitude);
    }
  }

  __host__ __device__ static float DecodeNarrowMagnitude(uint32_t magnitude) {
    constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kBias) << 23;
    const uint32_t exponent = magnitude >> kMantissaBits;
    const uint32_t placed = magnitude << (23 - kMantissaBits);
    if (exponent == 0) return static_cast<float>(magnitude) * kSubnormalStep;
    if constexpr (kFormat.special == SpecialValues::kIeee) {
      if (exponent == LowBits(kExponentBits)) return FloatOf(placed | kFloatInfinity);
    }
    return FloatOf(placed + kRebias);
  }
};

// Element `index` of a tensor of whole-byte numbers.
template <NumberFormat kFormat>
__host__ __device__ float LoadNumber(const void* base, int64_t index) {
  static_assert(kFormat.bits == 8 || kFormat.bits == 16 || kFormat.bits == 32, "whole bytes");
  if constexpr (kFormat.bits == 8) {
    return NumberDecoder<kFormat>::Decode(static_cast<const uint8_t*>(base)[index]);
  } else if constexpr (kFormat.bits == 16) {
    return NumberDecoder<kFormat>::Decode(static_cast<const uint16_t*>(base)[index]);
  } else {
    return NumberDecoder<kFormat>::Decode(static_cast<const uint32_t*>(base)[index]);
  }
}

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_DECODE_NUMBER_CUH_
