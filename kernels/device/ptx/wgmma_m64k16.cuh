// What    wgmma.mma_async m64nTk16, float32 += A * B with A in registers and B in shared memory.
// Shapes  A [64 rows, 16 columns] 16-bit floats: warp w of the warpgroup holds rows 16w to 16w +
//         15; lane l holds in a[0] (row l/4, columns 2(l%4) and + 1), a[1] the same of row l/4 + 8,
//         a[2] and a[3] columns + 8. B [T tokens, 16 columns], K-major (ptx/wgmma_sync.cuh,
//         SwizzledTile). D: d[4j + c] is (row l/4 + 8 (c/2), token 8j + 2(l%4) + c%2).
// Sync    Asynchronous: between Fence and Wait of ptx/wgmma_sync.cuh nothing touches d and a.
// Source  PTX ISA, wgmma.mma_async. `accumulate` 0 starts from zero.
#ifndef GEMMD_KERNELS_DEVICE_PTX_WGMMA_M64K16_CUH_
#define GEMMD_KERNELS_DEVICE_PTX_WGMMA_M64K16_CUH_

#include <cstdint>

#include "kernels/contract/element_type.h"

namespace gemmd::device::ptx {

// clang-format off
#define GEMMD_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define GEMMD_D16(i) GEMMD_D4(i), GEMMD_D4(i + 4), GEMMD_D4(i + 8), GEMMD_D4(i + 12)
#define GEMMD_D64 GEMMD_D16(0), GEMMD_D16(16), GEMMD_D16(32), GEMMD_D16(48)
#define GEMMD_OPERANDS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate)

#define GEMMD_WGMMA_N8(type)    \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %9, 0; "  \
               "wgmma.mma_async.sync.aligned.m64n8k16.f32." type "." type " {"  \
               "%0, %1, %2, %3 "  \
               "}, {%4, %5, %6, %7}, %8, p, 1, 1, 0;}"  \
               : GEMMD_D4(0) : GEMMD_OPERANDS)
#define GEMMD_WGMMA_N16(type)    \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %13, 0; "  \
               "wgmma.mma_async.sync.aligned.m64n16k16.f32." type "." type " {"  \
               "%0, %1, %2, %3, %4, %5, %6, %7 "  \
               "}, {%8, %9, %10, %11}, %12, p, 1, 1, 0;}"  \
               : GEMMD_D4(0), GEMMD_D4(4) : GEMMD_OPERANDS)
#define GEMMD_WGMMA_N32(type)    \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %21, 0; "  \
               "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type " {"  \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15 "  \
               "}, {%16, %17, %18, %19}, %20, p, 1, 1, 0;}"  \
               : GEMMD_D16(0) : GEMMD_OPERANDS)
#define GEMMD_WGMMA_N64(type)    \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %37, 0; "  \
               "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " {"  \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "  \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31 "  \
               "}, {%32, %33, %34, %35}, %36, p, 1, 1, 0;}"  \
               : GEMMD_D16(0), GEMMD_D16(16) : GEMMD_OPERANDS)
#define GEMMD_WGMMA_N128(type)    \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %69, 0; "  \
               "wgmma.mma_async.sync.aligned.m64n128k16.f32." type "." type " {"  \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "  \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "  \
               "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "  \
               "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63 "  \
               "}, {%64, %65, %66, %67}, %68, p, 1, 1, 0;}"  \
               : GEMMD_D64 : GEMMD_OPERANDS)
// clang-format on

template <ElementType kType, int kTokens>
__device__ __forceinline__ void WgmmaM64K16(float (&d)[kTokens / 2], const uint32_t (&a)[4],
                                            uint64_t b, int accumulate) {
  constexpr bool kIsBFloat16 = kType == ElementType::kBFloat16;
  static_assert(kIsBFloat16 || kType == ElementType::kFloat16, "A and B are 16-bit floats");
  static_assert(kTokens == 8 || kTokens == 16 || kTokens == 32 || kTokens == 64 || kTokens == 128,
                "one instruction per token count");
  if constexpr (kTokens == 8) {
    if constexpr (kIsBFloat16) {
      GEMMD_WGMMA_N8("bf16");
    } else {
      GEMMD_WGMMA_N8("f16");
    }
  }
  if constexpr (kTokens == 16) {
    if constexpr (kIsBFloat16) {
      GEMMD_WGMMA_N16("bf16");
    } else {
      GEMMD_WGMMA_N16("f16");
    }
  }
  if constexpr (kTokens == 32) {
    if constexpr (kIsBFloat16) {
      GEMMD_WGMMA_N32("bf16");
    } else {
      GEMMD_WGMMA_N32("f16");
    }
  }
  if constexpr (kTokens == 64) {
    if constexpr (kIsBFloat16) {
      GEMMD_WGMMA_N64("bf16");
    } else {
      GEMMD_WGMMA_N64("f16");
    }
  }
  if constexpr (kTokens == 128) {
    if constexpr (kIsBFloat16) {
      GEMMD_WGMMA_N128("bf16");
    } else {
      GEMMD_WGMMA_N128("f16");
    }
  }
}

#undef GEMMD_WGMMA_N8
#undef GEMMD_WGMMA_N16
#undef GEMMD_WGMMA_N32
#undef GEMMD_WGMMA_N64
#undef GEMMD_WGMMA_N128
#undef GEMMD_OPERANDS
#undef GEMMD_D64
#undef GEMMD_D16
#undef GEMMD_D4

}  // namespace gemmd::device::ptx

#endif  // GEMMD_KERNELS_DEVICE_PTX_WGMMA_M64K16_CUH_
