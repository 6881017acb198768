// What    (word & kMask) | kBits in one instruction; the compiler makes two of it.
// Source  PTX ISA, lop3.b32: 0xea is (a & b) | c.
#ifndef GEMMD_KERNELS_DEVICE_PTX_SELECT_OR_CUH_
#define GEMMD_KERNELS_DEVICE_PTX_SELECT_OR_CUH_

#include <cstdint>

#include "kernels/device/portable.cuh"

namespace gemmd::device::ptx {

template <uint32_t kMask, uint32_t kBits>
__host__ __device__ inline uint32_t SelectOr(uint32_t word) {
#ifdef __CUDA_ARCH__
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(word), "n"(kMask), "r"(kBits));
  return result;
#else
  return (word & kMask) | kBits;
#endif
}

}  // namespace gemmd::device::ptx

#endif  // GEMMD_KERNELS_DEVICE_PTX_SELECT_OR_CUH_
