// What    Codes of one slab -> registers of wgmma's fragment A, two 16-bit floats each: code - zero
//         point for integers, the number itself for floats; exact, or that times a scale, rounded once.
// Shapes  offset: Offset(zero point), of the register's row.
// Errors  Formats whose numbers the 16-bit type cannot hold do not compile. Infinity and NaN codes
//         are read as finite numbers: packing refuses them (kernels/pack).
// Sync    None: registers only.
// Source  An exponent pattern whose last mantissa bit is worth 1 turns an OR into an addition:
//         0x4300 is 128 in bfloat16, 0x6400 is 1024 in float16. Bits of a narrower float in the
//         places of the same kind are that float times a power of two, subnormals included.
#ifndef GEMMD_KERNELS_DEVICE_DECODE_PAIRS_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_DECODE_PAIRS_SM90_CUH_

#include "kernels/contract/sm90_operand.h"
#include "kernels/device/portable.cuh"
#include "kernels/device/ptx/multiply_pairs.cuh"
#include "kernels/device/ptx/select_or.cuh"
#include "kernels/device/ptx/subtract_pairs.cuh"
#include "kernels/device/slab_codes_sm90.cuh"

namespace gemmd::device {

template <ElementType kType>
struct PairMath {
  __device__ static uint32_t Subtract(uint32_t a, uint32_t b) {
    return ptx::SubtractPairs<kType>(a, b);
  }
  __device__ static uint32_t Multiply(uint32_t a, uint32_t b) {
    return ptx::MultiplyPairs<kType>(a, b);
  }
};

template <class Config, class Math = PairMath<Config::kXType>>
struct DecodePairsSm90 {
  static constexpr Sm90Operand Operand() { return {Config::kWeight, Config::kXType}; }
  static constexpr NumberFormat kWeight = Config::kWeight;
  static constexpr bool kIsBFloat16 = Config::kXType == ElementType::kBFloat16;
  static constexpr int kMantissaBits = Operand().mantissa_bits();
  static constexpr uint32_t kMagic = kIsBFloat16 ? 0x43004300u : 0x64006400u;
  static constexpr bool kIsInteger = Operand().is_integer_weight();
  // 8-bit integers in bfloat16: the upper bit has no place in the mantissa.
  static constexpr bool kHasUpperBit = kIsInteger && kWeight.bits > kMantissaBits;
  static constexpr bool kHasZeroPoints = Config::kZeroPoint == ZeroPointKind::kInteger;
  // Floats keep their bits when they are placed in x's type: the power of two that this takes off.
  static constexpr int kDebt = kIsInteger ? 0 : Operand().bias() - kWeight.bias();
  static_assert(kIsInteger || (kWeight.exponent_bits <= (kIsBFloat16 ? 8 : 5) &&
                               kWeight.mantissa_bits <= kMantissaBits),
                "the numbers do not fit into x's type");

  // What Decode takes off: kMagic + zero point, or zero point - 128 where the upper bit did the rest.
  __host__ __device__ static uint32_t Offset(uint32_t zero_point) {
    if constexpr (!kHasUpperBit) {
      return kMagic + zero_point * 0x00010001u;
    } else {
      const float below = static_cast<float>(static_cast<int>(zero_point) - 128);
      return (BitsOf(below) >> 16) * 0x00010001u;
    }
  }

  // Floats: the weight times 2^-kDebt times `scale`, which is twice in a register.
  template <class Codes>
  __host__ __device__ static uint32_t DecodeRaised(const Codes& codes, int v, uint32_t scale) {
    return Math::Multiply(Placed(codes, v), scale);
  }

  // The weight times `scale`, rounded once.
  template <class Codes>
  __host__ __device__ static uint32_t DecodeScaled(const Codes& codes, int v, uint32_t offset,
                                                   uint32_t scale) {
    return Math::Multiply(Decode(codes, v, offset), scale);
  }

  template <class Codes>
  __host__ __device__ static uint32_t Decode(const Codes& codes, int v, uint32_t offset) {
    if constexpr (kHasUpperBit) {
      return DecodeEightBits(codes.Lanes(v, 0), offset);
    } else if constexpr (kIsInteger) {
      return Math::Subtract(codes.template Raised<kMagic>(v), offset);
    } else if constexpr (Operand().is_sign_magnitude()) {
      constexpr uint32_t kMagnitude = InLanes(LowBits(kWeight.bits - 1), 16);
      const uint32_t raised = ptx::SelectOr<kMagnitude, kMagic>(codes.Lanes(v, 0));
      return Math::Subtract(raised, kMagic) | SignOf(codes, v);
    } else {
      return DecodeFloat(codes, v);
    }
  }

 private:
  template <class Codes>
  __host__ __device__ static uint32_t SignOf(const Codes& codes, int v) {
    return codes.Lanes(v, 16 - kWeight.bits) & 0x80008000u;
  }

  // The weights times 2^-kDebt.
  template <class Codes>
  __host__ __device__ static uint32_t Placed(const Codes& codes, int v) {
    constexpr int kUp = kMantissaBits - kWeight.mantissa_bits;
    constexpr uint32_t kMagnitude = InLanes(LowBits(kWeight.bits - 1) << kUp, 16);
    return (codes.Lanes(v, kUp) & kMagnitude) | SignOf(codes, v);
  }

  template <class Codes>
  __host__ __device__ static uint32_t DecodeFloat(const Codes& codes, int v) {
    if constexpr (kDebt == 0) {
      return Placed(codes, v);
    } else {
      constexpr uint32_t kPower = static_cast<uint32_t>(Operand().bias() + kDebt) << kMantissaBits;
      return Math::Multiply(Placed(codes, v), kPower * 0x00010001u);
    }
  }

  // 128 + lower bits, less 128 with the upper bit set and 256 without: code - 128.
  __host__ __device__ static uint32_t DecodeEightBits(uint32_t lanes, uint32_t offset) {
    const uint32_t raised = ptx::SelectOr<0x007f007fu, kMagic>(lanes);
    const uint32_t below = (lanes & 0x00800080u) ^ 0x43804380u;
    const uint32_t centred = Math::Subtract(raised, below);
    return kHasZeroPoints ? Math::Subtract(centred, offset) : centred;
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_DECODE_PAIRS_SM90_CUH_
