// What    a * b of two 16-bit floats packed in a register, each rounded to nearest even; subnormals
//         count.
// Source  PTX ISA, mul.bf16x2 (sm_90), mul.f16x2.
#ifndef GEMMD_KERNELS_DEVICE_PTX_MULTIPLY_PAIRS_CUH_
#define GEMMD_KERNELS_DEVICE_PTX_MULTIPLY_PAIRS_CUH_

#include <cstdint>

#include "kernels/contract/element_type.h"

namespace gemmd::device::ptx {

template <ElementType kType>
__device__ inline uint32_t MultiplyPairs(uint32_t a, uint32_t b) {
  uint32_t d;
  if constexpr (kType == ElementType::kBFloat16) {
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  } else {
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  }
  return d;
}

}  // namespace gemmd::device::ptx

#endif  // GEMMD_KERNELS_DEVICE_PTX_MULTIPLY_PAIRS_CUH_
