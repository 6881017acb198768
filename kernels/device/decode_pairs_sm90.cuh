// What    Codes of one slab -> registers of wgmma's fragment A, two 16-bit floats each: code - zero
//         point for integers (in bfloat16 times 2^Sm90Operand::kRaisedExponent), the number itself for
//         floats; exact, or that times a scale, rounded once.
// Shapes  offset: Offset(zero point), of the register's row.
// Errors  Formats whose numbers the 16-bit type cannot hold do not compile. Infinity and NaN codes
//         are read as finite numbers: packing refuses them (kernels/pack).
// Sync    None: registers only.
// Source  An exponent pattern whose last mantissa bit is worth 1 turns an OR into an addition:
//         0x4300 is 128 in bfloat16, 0x6400 is 1024 in float16. Bits of a narrower float in the
//         places of the same kind are that float times a power of two, subnormals included. bfloat16's codes 0 to
//         255 are 0 to 255 times 2^-133, so that one fma makes a code an operand: times a power of two or a scale,
//         less the zero point times the same, rounded once.
#ifndef GEMMD_KERNELS_DEVICE_DECODE_PAIRS_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_DECODE_PAIRS_SM90_CUH_

#include "kernels/contract/sm90_operand.h"
#include "kernels/device/portable.cuh"
#include "kernels/device/ptx/fuse_pairs.cuh"
#include "kernels/device/ptx/multiply_pairs.cuh"
#include "kernels/device/ptx/narrow_pair.cuh"
#include "kernels/device/ptx/permute_bytes.cuh"
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
  // a * b + c
  __device__ static uint32_t Fuse(uint32_t a, uint32_t b, uint32_t c) {
    return ptx::FusePairs<kType>(a, b, c);
  }
  __device__ static uint32_t Narrow(float low, float high) {
    return ptx::NarrowPair<kType>(low, high);
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
  static constexpr bool kHasZeroPoints = Config::kZeroPoint == ZeroPointKind::kInteger;
  static constexpr bool kIsRaised = Operand().is_raised();
  // Bits by which lanes that lie beside others stay further up (SlabCodesSm90::IsBesideAnother): a shift less.
  // Numbers that are subtracted would be one for each of both.
  static constexpr int kBeside =
      kIsInteger && kWeight.bits <= 4 && (kIsRaised || !kHasZeroPoints) ? kWeight.bits : 0;
  static constexpr uint32_t kHalf = kIsInteger ? 1u << (kWeight.bits - 1) : 0;
  // Floats keep their bits when they are placed in x's type: the power of two that this takes off.
  static constexpr int kDebt = kIsInteger ? 0 : Operand().bias() - kWeight.bias();
  static_assert(kIsInteger || (kWeight.exponent_bits <= (kIsBFloat16 ? 8 : 5) &&
                               kWeight.mantissa_bits <= kMantissaBits),
                "the numbers do not fit into x's type");

  // What Decode takes off, of a zero point (kHalf without zero points): kMagic + zero point, or of raised codes
  // what it adds, -zero point * 2^kRaisedExponent.
  __host__ __device__ static uint32_t Offset(uint32_t zero_point) {
    if constexpr (!kIsRaised) {
      return kMagic + zero_point * 0x00010001u;
    } else if constexpr (kHasZeroPoints) {
      return Math::Multiply(zero_point * 0x00010001u, kSignBits | RaisingPower(0));
    } else {
      constexpr uint32_t kExponent = 127 + kWeight.bits - 1 + Sm90Operand::kRaisedExponent;
      return kSignBits | InLanes(kExponent << kMantissaBits, 16);
    }
  }

  // What makes raised codes that lie `up` bits further up weights: 2^(127 - up).
  __host__ __device__ static constexpr uint32_t RaisingPower(int up) {
    return InLanes(static_cast<uint32_t>(254 - up) << kMantissaBits, 16);
  }

  __host__ __device__ static uint32_t Scaled(uint32_t pair, uint32_t factor) {
    return Math::Multiply(pair, factor);
  }

  // Raised codes in one fma, both factors for the codes in their place and for those beside them: the weight times
  // 2^kRaisedExponent is code * RaisingPower + Offset; times a scale below 2, both times that scale.
  template <class Codes>
  __host__ __device__ static uint32_t DecodeFused(const Codes& codes, int v, uint32_t factor,
                                                  uint32_t factor_beside, uint32_t offset) {
    if (kBeside != 0 && Codes::IsBesideAnother(v)) {
      return Math::Fuse(codes.template Raised<0, kBeside>(v), factor_beside, offset);
    }
    return Math::Fuse(codes.template Raised<0>(v), factor, offset);
  }

  // Integers in float32: code * scale + offset, rounded once.
  template <class Codes>
  __host__ __device__ static uint32_t DecodeLine(const Codes& codes, int v, float scale, float offset) {
    const uint32_t pair = codes.template Raised<0>(v);
    return Math::Narrow(CodeInFloat32<0x7610>(pair) * scale + offset, CodeInFloat32<0x7632>(pair) * scale + offset);
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
    if constexpr (kIsRaised) {
      return DecodeFused(codes, v, RaisingPower(0), RaisingPower(kBeside), offset);
    } else if constexpr (kIsInteger) {
      return DecodeByMagic(codes, v, offset);
    } else if constexpr (Operand().is_sign_magnitude()) {
      constexpr uint32_t kMagnitude = InLanes(LowBits(kWeight.bits - 1), 16);
      const uint32_t raised = ptx::SelectOr<kMagnitude, kMagic>(codes.Lanes(v, 0));
      return Math::Subtract(raised, kMagic) | SignOf(codes, v);
    } else {
      return DecodeFloat(codes, v);
    }
  }

 private:
  static constexpr uint32_t kSignBits = 0x80008000u;

  // The half of a pair that `kBytes` picks: its bits behind those of 2^23 are 2^23 + code.
  template <uint32_t kBytes>
  __host__ __device__ static float CodeInFloat32(uint32_t pair) {
    constexpr uint32_t kTwo23 = 0x4b000000u;
    return FloatOf(ptx::PermuteBytes(pair, kTwo23, kBytes)) - FloatOf(kTwo23);
  }

  template <class Codes>
  __host__ __device__ static uint32_t DecodeByMagic(const Codes& codes, int v, uint32_t offset) {
    if constexpr (kBeside != 0) {
      constexpr uint32_t kMagicBeside =
          kMagic - InLanes(static_cast<uint32_t>(kBeside) << kMantissaBits, 16);
      if (Codes::IsBesideAnother(v)) {
        return Math::Subtract(codes.template Raised<kMagicBeside, kBeside>(v),
                              kMagicBeside + InLanes(kHalf << kBeside, 16));
      }
    }
    return Math::Subtract(codes.template Raised<kMagic>(v), offset);
  }

  template <class Codes>
  __host__ __device__ static uint32_t SignOf(const Codes& codes, int v) {
    return codes.Lanes(v, 16 - kWeight.bits) & kSignBits;
  }

  // The weights times 2^-kDebt.
  template <class Codes>
  __host__ __device__ static uint32_t Placed(const Codes& codes, int v) {
    constexpr int kUp = kMantissaBits - kWeight.mantissa_bits;
    constexpr uint32_t kMagnitude = InLanes(LowBits(kWeight.bits - 1) << kUp, 16);
    if constexpr (Operand().has_signs_apart()) {
      constexpr int kBFloat16Bits = 7;
      return codes.template Spread<kMantissaBits - kBFloat16Bits>(v);
    } else {
      return (codes.Lanes(v, kUp) & kMagnitude) | SignOf(codes, v);
    }
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
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_DECODE_PAIRS_SM90_CUH_
