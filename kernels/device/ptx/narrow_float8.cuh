// What    Two float32 -> two e4m3 or e5m2 in 16 bits, `low` in the low byte: to nearest even, infinite and
//         too large values become the largest finite one, a NaN stays one.
// Needs   SM89 or newer.
// Source  PTX ISA, cvt.rn.satfinite.e4m3x2.f32 and cvt.rn.satfinite.e5m2x2.f32.
#ifndef GEMMD_KERNELS_DEVICE_PTX_NARROW_FLOAT8_CUH_
#define GEMMD_KERNELS_DEVICE_PTX_NARROW_FLOAT8_CUH_

#include <cstdint>

namespace gemmd::device::ptx {

__device__ __forceinline__ uint32_t NarrowE4M3(float low, float high) {
  uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}

__device__ __forceinline__ uint32_t NarrowE5M2(float low, float high) {
  uint16_t pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}

}  // namespace gemmd::device::ptx

#endif  // GEMMD_KERNELS_DEVICE_PTX_NARROW_FLOAT8_CUH_
