// What    mma.sync m16n8k8: d[16][8] += a[16][8] * b[8][8], TF32 operands, float32 accumulators.
// Shapes  Lane l = 4 g + t holds (PTX ISA, "Matrix fragments for mma.m16n8k8"):
//           a[0..3] = (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4)
//           b[0..1] = (t, g), (t + 4, g)                  as (k, n)
//           d[0..3] = (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1)
// Needs   SM80. The unit ignores the low 13 bits of each operand.
#ifndef GEMMD_KERNELS_DEVICE_PTX_MMA_M16N8K8_TF32_CUH_
#define GEMMD_KERNELS_DEVICE_PTX_MMA_M16N8K8_TF32_CUH_

#include "kernels/device/portable.cuh"

namespace gemmd::device::ptx {

__device__ inline void MmaM16N8K8Tf32(float (&d)[4], const float (&a)[4], const float (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(BitsOf(a[0])), "r"(BitsOf(a[1])), "r"(BitsOf(a[2])), "r"(BitsOf(a[3])),
        "r"(BitsOf(b[0])), "r"(BitsOf(b[1])));
}

}  // namespace gemmd::device::ptx

#endif  // GEMMD_KERNELS_DEVICE_PTX_MMA_M16N8K8_TF32_CUH_
