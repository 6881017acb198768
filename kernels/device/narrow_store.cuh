// What    Parts of storing 16-bit y: two rounded values in a word, and up to eight of them from a vector.
// Sync    None.
#ifndef GEMMD_KERNELS_DEVICE_NARROW_STORE_CUH_
#define GEMMD_KERNELS_DEVICE_NARROW_STORE_CUH_

#include <cstdint>

#include "kernels/device/portable.cuh"
#include "kernels/device/ptx/narrow_bfloat16.cuh"
#include "kernels/device/ptx/narrow_float16.cuh"

namespace gemmd::device {

// Both 16-bit types in one piece of code: what is unrolled around it is most of what the compiler has to do.
__device__ __forceinline__ uint32_t NarrowPair(bool is_bfloat16, float low, float high) {
  const uint32_t bfloat16 = ptx::NarrowBFloat16(low, high);
  const uint32_t float16 = ptx::NarrowFloat16(low, high);
  return is_bfloat16 ? bfloat16 : float16;
}

// At most `count` of the vector's eight elements.
__device__ __forceinline__ void StoreEight(uint16_t* to, const uint4& v, int32_t count) {
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
  GEMMD_UNROLL
  for (int i = 0; i < 8; ++i) {
    if (i < count) to[i] = static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16));
  }
}

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_NARROW_STORE_CUH_
