// What    Largest magnitude -> scale, and quotients by that scale as IEEE division gives them, without a
//         division per element.
// Sync    None: registers only.
// Source  y = 1 / d and two steps q += (v - q d) y give v / d rounded to nearest: P. Markstein,
//         "Computation of elementary functions on the IBM RISC System/6000 processor" (1990). It needs
//         remainders that are float32 numbers. Quotients so small that theirs are not are far below
//         half of the smallest code.
#ifndef GEMMD_KERNELS_DEVICE_QUANTIZE_X_SCALE_CUH_
#define GEMMD_KERNELS_DEVICE_QUANTIZE_X_SCALE_CUH_

#ifndef __CUDACC__
#include <cmath>
#endif

#include "kernels/contract/element_type.h"
#include "kernels/device/portable.cuh"
#include "kernels/device/ptx/max_nan.cuh"

namespace gemmd::device {

__host__ __device__ inline float Magnitude(float value) {
  return FloatOf(BitsOf(value) & ~kFloatSign);
}

// NaN when one of them is.
template <int kCount>
__host__ __device__ float LargestMagnitude(const float (&values)[kCount]) {
  float largest = 0;
  GEMMD_UNROLL
  for (int i = 0; i < kCount; ++i) largest = ptx::MaxNan(largest, Magnitude(values[i]));
  return largest;
}

constexpr float LargestCode(ElementType type) {
  return type == ElementType::kFloat8E4M3   ? 448.0f
         : type == ElementType::kFloat8E5M2 ? 57344.0f
                                            : 127.0f;
}

// 1 for zeros, and where the scale would be less than float32 has.
template <ElementType kCode>
__host__ __device__ float ScaleOf(float largest) {
  const float scale = largest / LargestCode(kCode);
  return scale == 0 ? 1.0f : scale;
}

// v / d in four fused steps and no branch.
class Quotients {
 public:
  __host__ __device__ explicit Quotients(float divisor) {
    // Both sides times a power of two: remainders stay float32 numbers. What that costs of a value's
    // last bits belongs to a quotient that is far below every code.
    const float magnitude = Magnitude(divisor);
    factor_ = magnitude < 0x1p-80f ? 0x1p64f : (magnitude > 0x1p100f ? 0x1p-64f : 1.0f);
    const float scaled = divisor * factor_;
    reciprocal_ = 1.0f / scaled;
    divisor_ = reciprocal_ == 0 ? 0.0f : scaled;  // infinite: every remainder is the value
  }

  __host__ __device__ float Of(float value) const {
    const float scaled = value * factor_;
    const float guess = scaled * reciprocal_;
    const float once = fmaf(fmaf(-divisor_, guess, scaled), reciprocal_, guess);
    const float twice = fmaf(fmaf(-divisor_, once, scaled), reciprocal_, once);
    // A zero keeps its sign. Beyond every code, infinite or NaN there is no remainder.
    const float quotient = FloatOf((BitsOf(twice) & ~kFloatSign) | (BitsOf(guess) & kFloatSign));
    return Magnitude(guess) < 0x1p60f ? quotient : guess;
  }

 private:
  float factor_;
  float divisor_;
  float reciprocal_;
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_QUANTIZE_X_SCALE_CUH_
