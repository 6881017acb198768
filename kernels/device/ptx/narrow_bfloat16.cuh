// What    Two float32 -> two bfloat16 in one register, `low` in its low half, rounded to nearest
//         even.
// Source  PTX ISA, cvt.rn.bf16x2.f32.
#ifndef GEMMD_KERNELS_DEVICE_PTX_NARROW_BFLOAT16_CUH_
#define GEMMD_KERNELS_DEVICE_PTX_NARROW_BFLOAT16_CUH_

#include <cstdint>

namespace gemmd::device::ptx {

__device__ __forceinline__ uint32_t NarrowBFloat16(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

}  // namespace gemmd::device::ptx

#endif  // GEMMD_KERNELS_DEVICE_PTX_NARROW_BFLOAT16_CUH_
