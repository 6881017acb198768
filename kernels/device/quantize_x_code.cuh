// What    float32 -> 8-bit codes, four to a register: to nearest, ties to even, saturating (infinities
//         too). A NaN stays one in e4m3 and e5m2 and is 0 in int8, which has none.
// Sync    None: registers only.
// Source  kernels/contract/number_format.h; OFP8.
#ifndef GEMMD_KERNELS_DEVICE_QUANTIZE_X_CODE_CUH_
#define GEMMD_KERNELS_DEVICE_QUANTIZE_X_CODE_CUH_

#include "kernels/contract/element_type.h"
#include "kernels/contract/number_format.h"
#include "kernels/device/portable.cuh"

#ifdef __CUDACC__
#include "kernels/device/ptx/narrow_float8.cuh"
#endif

namespace gemmd::device {

// As the conversion instructions of SM89 and newer round; for older ones and the host.
template <NumberFormat kFormat>
__host__ __device__ uint32_t RoundToFloat8(float value) {
  static_assert(kFormat == kFloat8E4M3 || kFormat == kFloat8E5M2, "8-bit floats");
  constexpr bool kIsE4M3 = kFormat == kFloat8E4M3;
  constexpr uint32_t kNan = kIsE4M3 ? 0x7f : 0x7e;
  constexpr uint32_t kLargest = kIsE4M3 ? 0x7e : 0x7b;
  constexpr int kDropped = 23 - kFormat.mantissa_bits;
  constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kFormat.bias()) << 23;
  constexpr uint32_t kSmallestNormal = kRebias + (1u << 23);
  constexpr uint32_t kLargestBits = (kLargest << kDropped) + kRebias;
  // float32's own rounding drops what the format's subnormals cannot hold.
  constexpr float kSubnormalSum = kIsE4M3 ? 0x1p14f : 0x1p7f;
  const uint32_t sign = (BitsOf(value) & kFloatSign) >> 24;
  const uint32_t magnitude = BitsOf(value) & ~kFloatSign;
  if (magnitude > kFloatInfinity) return kNan;
  if (magnitude >= kLargestBits) return sign | kLargest;
  if (magnitude < kSmallestNormal) {
    return sign | (BitsOf(FloatOf(magnitude) + kSubnormalSum) - BitsOf(kSubnormalSum));
  }
  constexpr uint32_t kHalf = (1u << (kDropped - 1)) - 1;
  const uint32_t rebased = magnitude - kRebias;
  return sign | ((rebased + kHalf + ((rebased >> kDropped) & 1u)) >> kDropped);
}

// Two's complement.
__host__ __device__ inline uint32_t RoundToInt8(float value) {
  const float clamped = value < -127.0f ? -127.0f : (value > 127.0f ? 127.0f : value);
  // The sum's unit is 1: its low bits are the nearest integer.
  const uint32_t rounded = BitsOf(clamped + 0x1.8p23f) & 0xffu;
  return value != value ? 0u : rounded;
}

template <ElementType kCode>
struct CodeRounder {
  // The code of `values[i]` in byte i.
  __host__ __device__ static uint32_t Four(const float* values) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    if constexpr (kCode == ElementType::kFloat8E4M3) {
      return ptx::NarrowE4M3(values[0], values[1]) | ptx::NarrowE4M3(values[2], values[3]) << 16;
    }
    if constexpr (kCode == ElementType::kFloat8E5M2) {
      return ptx::NarrowE5M2(values[0], values[1]) | ptx::NarrowE5M2(values[2], values[3]) << 16;
    }
#endif
    uint32_t word = 0;
    GEMMD_UNROLL
    for (int i = 0; i < 4; ++i) word |= One(values[i]) << (8 * i);
    return word;
  }

  __host__ __device__ static uint32_t One(float value) {
    if constexpr (kCode == ElementType::kFloat8E4M3) return RoundToFloat8<kFloat8E4M3>(value);
    if constexpr (kCode == ElementType::kFloat8E5M2) return RoundToFloat8<kFloat8E5M2>(value);
    return RoundToInt8(value);
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_QUANTIZE_X_CODE_CUH_
