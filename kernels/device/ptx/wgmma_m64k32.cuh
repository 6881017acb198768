// What    wgmma.mma_async m64nTk32 of 8-bit operands, A in registers or shared memory, B in shared
//         memory: float32
//         += floats, int32 += int8.
// Shapes  A [64 rows, 32 columns]: warp w of the warpgroup holds rows 16w to 16w + 15; lane l holds
//         in a[0] (row l/4, columns 4(l%4) to + 3), a[1] the same of row l/4 + 8, a[2] and a[3]
//         columns + 16. B and D as in ptx/wgmma_m64k16.cuh.
// Sync    As ptx/wgmma_m64k16.cuh.
// Source  PTX ISA, wgmma.mma_async. Sums of floats keep about 14 bits inside the unit: add them up
//         in float32 often.
#ifndef GEMMD_KERNELS_DEVICE_PTX_WGMMA_M64K32_CUH_
#define GEMMD_KERNELS_DEVICE_PTX_WGMMA_M64K32_CUH_

#include <cstdint>

#include "kernels/device/ptx/wgmma_text.cuh"

namespace gemmd::device::ptx {

template <bool kAIsE5M2, bool kBIsE5M2, int kTokens>
__device__ __forceinline__ void WgmmaM64K32(float (&d)[kTokens / 2], const uint32_t (&a)[4],
                                            uint64_t b, int accumulate) {
  if constexpr (kAIsE5M2 && kBIsE5M2) {
    GEMMD_WGMMA("k32.f32.e5m2.e5m2", ", 1, 1", "+f", REGISTERS);
  } else if constexpr (kAIsE5M2) {
    GEMMD_WGMMA("k32.f32.e5m2.e4m3", ", 1, 1", "+f", REGISTERS);
  } else if constexpr (kBIsE5M2) {
    GEMMD_WGMMA("k32.f32.e4m3.e5m2", ", 1, 1", "+f", REGISTERS);
  } else {
    GEMMD_WGMMA("k32.f32.e4m3.e4m3", ", 1, 1", "+f", REGISTERS);
  }
}

template <int kTokens>
__device__ __forceinline__ void WgmmaM64K32Int8(int32_t (&d)[kTokens / 2], const uint32_t (&a)[4],
                                                uint64_t b, int accumulate) {
  GEMMD_WGMMA("k32.s32.s8.s8", "", "+r", REGISTERS);
}

// `a`: descriptor of 64 rows.
template <bool kAIsE5M2, bool kBIsE5M2, int kTokens>
__device__ __forceinline__ void WgmmaM64K32(float (&d)[kTokens / 2], uint64_t a,
                                            uint64_t b, int accumulate) {
  if constexpr (kAIsE5M2 && kBIsE5M2) {
    GEMMD_WGMMA("k32.f32.e5m2.e5m2", ", 1, 1", "+f", SHARED);
  } else if constexpr (kAIsE5M2) {
    GEMMD_WGMMA("k32.f32.e5m2.e4m3", ", 1, 1", "+f", SHARED);
  } else if constexpr (kBIsE5M2) {
    GEMMD_WGMMA("k32.f32.e4m3.e5m2", ", 1, 1", "+f", SHARED);
  } else {
    GEMMD_WGMMA("k32.f32.e4m3.e4m3", ", 1, 1", "+f", SHARED);
  }
}

template <int kTokens>
__device__ __forceinline__ void WgmmaM64K32Int8(int32_t (&d)[kTokens / 2], uint64_t a,
                                                uint64_t b, int accumulate) {
  GEMMD_WGMMA("k32.s32.s8.s8", "", "+r", SHARED);
}

}  // namespace gemmd::device::ptx

#endif  // GEMMD_KERNELS_DEVICE_PTX_WGMMA_M64K32_CUH_
