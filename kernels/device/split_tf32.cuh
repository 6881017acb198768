// What    A float32 as the sum of one or two TF32 numbers (11 significant bits, 8 exponent bits).
//         value = high + low within 2^-22 |value|; exact with low = 0 when value is a TF32 number.
// Keys    Infinities and NaNs live in `high` alone. They must not meet the low term of the other
//         operand, which may be 0: FiniteOrZero takes them out of those products.
// Sync    None: registers only.
// Source  Error analysis: kernels/device/README.md, "Two terms".
#ifndef GEMMD_KERNELS_DEVICE_SPLIT_TF32_CUH_
#define GEMMD_KERNELS_DEVICE_SPLIT_TF32_CUH_

#include "kernels/device/portable.cuh"

namespace gemmd::device {

struct Tf32Pair {
  float high;
  float low;
};

inline constexpr uint32_t kTf32Mask = 0xffffe000u;  // the matrix unit reads these bits of a float32

__host__ __device__ inline bool IsFinite(float value) {
  return (BitsOf(value) & kFloatInfinity) != kFloatInfinity;
}

__host__ __device__ inline float FiniteOrZero(float value) {
  return IsFinite(value) ? value : 0.0f;
}

// Nearest TF32 of a finite value, ties to even; a value that would round to infinity is cut
// instead.
__host__ __device__ inline float NearestTf32(float value) {
  const uint32_t bits = BitsOf(value);
  const uint32_t rounded = (bits + 0xfffu + ((bits >> 13) & 1u)) & kTf32Mask;
  return FloatOf((rounded & kFloatInfinity) == kFloatInfinity ? bits & kTf32Mask : rounded);
}

__host__ __device__ inline Tf32Pair SplitTf32(float value) {
  if (!IsFinite(value)) {
    const bool is_nan = (BitsOf(value) & ~kFloatSign) > kFloatInfinity;
    return {is_nan ? FloatOf(kFloatQuietNan) : value, 0.0f};
  }
  const float high = NearestTf32(value);
  return {high, NearestTf32(value - high)};
}

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_SPLIT_TF32_CUH_
