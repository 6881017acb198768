// What    wgmma.mma_async m64nTk16, float32 += A * B with A in registers or shared memory, B in shared memory.
//         With d as uint32_t: float16 += A * B, A and B float16.
// Shapes  A [64 rows, 16 columns] 16-bit floats: warp w of the warpgroup holds rows 16w to 16w +
//         15; lane l holds in a[0] (row l/4, columns 2(l%4) and + 1), a[1] the same of row l/4 + 8,
//         a[2] and a[3] columns + 8. B [T tokens, 16 columns], K-major (ptx/wgmma_sync.cuh,
//         SwizzledTile). D: d[4j + c] is (row l/4 + 8 (c/2), token 8j + 2(l%4) + c%2). Sums of float16: d[2j + c]
//         has those of rows l/4 + 8c, token 8j + 2(l%4) in its low half and the next token's in the high one.
// Sync    Asynchronous: between Fence and Wait of ptx/wgmma_sync.cuh nothing touches d and a.
// Source  PTX ISA, wgmma.mma_async. `accumulate` 0 starts from zero.
#ifndef GEMMD_KERNELS_DEVICE_PTX_WGMMA_M64K16_CUH_
#define GEMMD_KERNELS_DEVICE_PTX_WGMMA_M64K16_CUH_

#include <cstdint>

#include "kernels/contract/element_type.h"
#include "kernels/device/ptx/wgmma_text.cuh"

namespace gemmd::device::ptx {

template <ElementType kType, int kTokens>
__device__ __forceinline__ void WgmmaM64K16(float (&d)[kTokens / 2], const uint32_t (&a)[4],
                                            uint64_t b, int accumulate) {
  static_assert(kTokens >= 8 && kTokens <= 256 && (kTokens & (kTokens - 1)) == 0,
                "one instruction per token count");
  if constexpr (kType == ElementType::kBFloat16) {
    GEMMD_WGMMA("k16.f32.bf16.bf16", ", 1, 1, 0", "+f", REGISTERS);
  } else {
    static_assert(kType == ElementType::kFloat16, "A and B are 16-bit floats");
    GEMMD_WGMMA("k16.f32.f16.f16", ", 1, 1, 0", "+f", REGISTERS);
  }
}

// `a`: descriptor of 64 rows.
template <ElementType kType, int kTokens>
__device__ __forceinline__ void WgmmaM64K16(float (&d)[kTokens / 2], uint64_t a, uint64_t b,
                                            int accumulate) {
  if constexpr (kType == ElementType::kBFloat16) {
    GEMMD_WGMMA("k16.f32.bf16.bf16", ", 1, 1, 0, 0", "+f", SHARED);
  } else {
    static_assert(kType == ElementType::kFloat16, "A and B are 16-bit floats");
    GEMMD_WGMMA("k16.f32.f16.f16", ", 1, 1, 0, 0", "+f", SHARED);
  }
}

template <ElementType kType, int kTokens>
__device__ __forceinline__ void WgmmaM64K16(uint32_t (&d)[kTokens / 4], const uint32_t (&a)[4], uint64_t b,
                                            int accumulate) {
  static_assert(kType == ElementType::kFloat16, "the unit sums products of float16 alone in float16");
  static_assert(kTokens == 64 || kTokens == 128 || kTokens == 256, "one instruction per token count");
  GEMMD_WGMMA_PAIRS("k16.f16.f16.f16", ", 1, 1, 0", "+r", REGISTERS);
}

template <ElementType kType, int kTokens>
__device__ __forceinline__ void WgmmaM64K16(uint32_t (&d)[kTokens / 4], uint64_t a, uint64_t b, int accumulate) {
  static_assert(kType == ElementType::kFloat16, "the unit sums products of float16 alone in float16");
  static_assert(kTokens == 64 || kTokens == 128 || kTokens == 256, "one instruction per token count");
  GEMMD_WGMMA_PAIRS("k16.f16.f16.f16", ", 1, 1, 0, 0", "+r", SHARED);
}

}  // namespace gemmd::device::ptx

#endif  // GEMMD_KERNELS_DEVICE_PTX_WGMMA_M64K16_CUH_
