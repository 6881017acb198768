// What    Parts of storing 16-bit y: two rounded values in a word, and up to eight of them from a vector.
// Sync    None.
#ifndef GEMMD_KERNELS_DEVICE_NARROW_STORE_CUH_
#define GEMMD_KERNELS_DEVICE_NARROW_STORE_CUH_

#include <cstdint>

#include "kernels/contract/element_type.h"
#include "kernels/device/portable.cuh"
#include "kernels/device/ptx/narrow_bfloat16.cuh"
#include "kernels/device/ptx/narrow_float16.cuh"

namespace gemmd::device {

// pairs[i]: values 2 i and 2 i + 1. What is unrolled around a branch is most of what the compiler has to do, so
// there is one.
template <int kCount>
__device__ __forceinline__ void NarrowPairs(ElementType type, const float (&values)[kCount],
                                            uint32_t (&pairs)[kCount / 2]) {
  if (type == ElementType::kBFloat16) {
    GEMMD_UNROLL
    for (int i = 0; i < kCount / 2; ++i) {
      pairs[i] = ptx::NarrowBFloat16(values[2 * i], values[2 * i + 1]);
    }
  } else {
    GEMMD_UNROLL
    for (int i = 0; i < kCount / 2; ++i) {
      pairs[i] = ptx::NarrowFloat16(values[2 * i], values[2 * i + 1]);
    }
  }
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
