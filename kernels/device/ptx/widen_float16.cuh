// What    float16 in the low half of a register -> float32, exact.
// Source  PTX ISA, cvt.f32.f16.
#ifndef GEMMD_KERNELS_DEVICE_PTX_WIDEN_FLOAT16_CUH_
#define GEMMD_KERNELS_DEVICE_PTX_WIDEN_FLOAT16_CUH_

#include <cstdint>

namespace gemmd::device::ptx {

__device__ __forceinline__ float WidenFloat16(uint32_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<uint16_t>(bits)));
  return value;
}

}  // namespace gemmd::device::ptx

#endif  // GEMMD_KERNELS_DEVICE_PTX_WIDEN_FLOAT16_CUH_
