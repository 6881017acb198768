// What    a * b + c of two 16-bit floats packed in a register, each rounded once, to nearest even; subnormals
//         count.
// Source  PTX ISA, fma.rn.bf16x2, fma.rn.f16x2.
#ifndef GEMMD_KERNELS_DEVICE_PTX_FUSE_PAIRS_CUH_
#define GEMMD_KERNELS_DEVICE_PTX_FUSE_PAIRS_CUH_

#include <cstdint>

#include "kernels/contract/element_type.h"

namespace gemmd::device::ptx {

template <ElementType kType>
__device__ inline uint32_t FusePairs(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  if constexpr (kType == ElementType::kBFloat16) {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  } else {
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  }
  return d;
}

}  // namespace gemmd::device::ptx

#endif  // GEMMD_KERNELS_DEVICE_PTX_FUSE_PAIRS_CUH_
