// What    Two float32 -> two 16-bit floats in one register, `low` in its low half, rounded to nearest even.
// Source  PTX ISA, cvt.rn.bf16x2.f32, cvt.rn.f16x2.f32.
#ifndef GEMMD_KERNELS_DEVICE_PTX_NARROW_PAIR_CUH_
#define GEMMD_KERNELS_DEVICE_PTX_NARROW_PAIR_CUH_

#include <cstdint>

#include "kernels/contract/element_type.h"

namespace gemmd::device::ptx {

template <ElementType kType>
__device__ inline uint32_t NarrowPair(float low, float high) {
  uint32_t pair;
  if constexpr (kType == ElementType::kBFloat16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

}  // namespace gemmd::device::ptx

#endif  // GEMMD_KERNELS_DEVICE_PTX_NARROW_PAIR_CUH_
