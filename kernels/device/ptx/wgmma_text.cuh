// What    Text of one wgmma.mma_async, for the functions of wgmma_m64k16.cuh and wgmma_m64k32.cuh.
// Shapes  `shape` "k16.f32.bf16.bf16", `tail` what follows the predicate, `c` the constraint of the
//         accumulators d, `from` where A is: REGISTERS (a[4]) or SHARED (a is a descriptor); a, b
//         (descriptor) and accumulate are the caller's.
// Source  PTX ISA, wgmma.mma_async.
#ifndef GEMMD_KERNELS_DEVICE_PTX_WGMMA_TEXT_CUH_
#define GEMMD_KERNELS_DEVICE_PTX_WGMMA_TEXT_CUH_

// clang-format off
#define GEMMD_D4(c, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define GEMMD_D8(c, i) GEMMD_D4(c, i), GEMMD_D4(c, i + 4)
#define GEMMD_D16(c, i) GEMMD_D8(c, i), GEMMD_D8(c, i + 8)
#define GEMMD_D32(c, i) GEMMD_D16(c, i), GEMMD_D16(c, i + 16)
#define GEMMD_D64(c, i) GEMMD_D32(c, i), GEMMD_D32(c, i + 32)
#define GEMMD_D128(c, i) GEMMD_D64(c, i), GEMMD_D64(c, i + 64)
#define GEMMD_A_REGISTERS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
#define GEMMD_A_SHARED "l"(a)
#define GEMMD_A_REGISTERS_TEXT(i, j, k, l) "{%" #i ", %" #j ", %" #k ", %" #l "}"
#define GEMMD_A_SHARED_TEXT(i, j, k, l) "%" #i

#define GEMMD_WGMMA_R4(n, shape, tail, c, from) \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %5, 0; " \
               "wgmma.mma_async.sync.aligned.m64" n shape " {" \
               "%0, %1, %2, %3 " \
               "}, " GEMMD_A_##from##_TEXT(6, 7, 8, 9) ", %4, p" tail ";}" \
               : GEMMD_D4(c, 0) : "l"(b), "r"(accumulate), GEMMD_A_##from)
#define GEMMD_WGMMA_R8(n, shape, tail, c, from) \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %9, 0; " \
               "wgmma.mma_async.sync.aligned.m64" n shape " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7 " \
               "}, " GEMMD_A_##from##_TEXT(10, 11, 12, 13) ", %8, p" tail ";}" \
               : GEMMD_D8(c, 0) : "l"(b), "r"(accumulate), GEMMD_A_##from)
#define GEMMD_WGMMA_R16(n, shape, tail, c, from) \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %17, 0; " \
               "wgmma.mma_async.sync.aligned.m64" n shape " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15 " \
               "}, " GEMMD_A_##from##_TEXT(18, 19, 20, 21) ", %16, p" tail ";}" \
               : GEMMD_D16(c, 0) : "l"(b), "r"(accumulate), GEMMD_A_##from)
#define GEMMD_WGMMA_R32(n, shape, tail, c, from) \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %33, 0; " \
               "wgmma.mma_async.sync.aligned.m64" n shape " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31 " \
               "}, " GEMMD_A_##from##_TEXT(34, 35, 36, 37) ", %32, p" tail ";}" \
               : GEMMD_D32(c, 0) : "l"(b), "r"(accumulate), GEMMD_A_##from)
#define GEMMD_WGMMA_R64(n, shape, tail, c, from) \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %65, 0; " \
               "wgmma.mma_async.sync.aligned.m64" n shape " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
               "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
               "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63 " \
               "}, " GEMMD_A_##from##_TEXT(66, 67, 68, 69) ", %64, p" tail ";}" \
               : GEMMD_D64(c, 0) : "l"(b), "r"(accumulate), GEMMD_A_##from)
#define GEMMD_WGMMA_R128(n, shape, tail, c, from) \
  asm volatile("{.reg .pred p; setp.ne.b32 p, %129, 0; " \
               "wgmma.mma_async.sync.aligned.m64" n shape " {" \
               "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
               "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
               "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
               "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
               "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
               "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
               "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127 " \
               "}, " GEMMD_A_##from##_TEXT(130, 131, 132, 133) ", %128, p" tail ";}" \
               : GEMMD_D128(c, 0) : "l"(b), "r"(accumulate), GEMMD_A_##from)
// clang-format on

// The one of kTokens tokens.
#define GEMMD_WGMMA(shape, tail, c, from)                                       \
  if constexpr (kTokens == 8) GEMMD_WGMMA_R4("n8", shape, tail, c, from);        \
  if constexpr (kTokens == 16) GEMMD_WGMMA_R8("n16", shape, tail, c, from);      \
  if constexpr (kTokens == 32) GEMMD_WGMMA_R16("n32", shape, tail, c, from);     \
  if constexpr (kTokens == 64) GEMMD_WGMMA_R32("n64", shape, tail, c, from);     \
  if constexpr (kTokens == 128) GEMMD_WGMMA_R64("n128", shape, tail, c, from);   \
  if constexpr (kTokens == 256) GEMMD_WGMMA_R128("n256", shape, tail, c, from)

// Two sums of 16 bits a register.
#define GEMMD_WGMMA_PAIRS(shape, tail, c, from)                                 \
  if constexpr (kTokens == 64) GEMMD_WGMMA_R16("n64", shape, tail, c, from);     \
  if constexpr (kTokens == 128) GEMMD_WGMMA_R32("n128", shape, tail, c, from);   \
  if constexpr (kTokens == 256) GEMMD_WGMMA_R64("n256", shape, tail, c, from)

#endif  // GEMMD_KERNELS_DEVICE_PTX_WGMMA_TEXT_CUH_
