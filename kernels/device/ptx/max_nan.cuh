// What    The larger of two float32; a NaN when one of them is.
// Source  PTX ISA, max.NaN.f32 (SM80 and newer).
#ifndef GEMMD_KERNELS_DEVICE_PTX_MAX_NAN_CUH_
#define GEMMD_KERNELS_DEVICE_PTX_MAX_NAN_CUH_

#include "kernels/device/portable.cuh"

namespace gemmd::device::ptx {

__host__ __device__ inline float MaxNan(float a, float b) {
#ifdef __CUDA_ARCH__
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
#else
  return a != a ? a : (a > b ? a : b);  // b when b is a NaN: no comparison with it holds
#endif
}

}  // namespace gemmd::device::ptx

#endif  // GEMMD_KERNELS_DEVICE_PTX_MAX_NAN_CUH_
