// What    Four bytes of the eight of `low` (0 to 3) and `high` (4 to 7): nibble i of `selectors`
//         names byte i. Bit 3 of a nibble must be 0.
// Source  PTX ISA, prmt.b32.
#ifndef GEMMD_KERNELS_DEVICE_PTX_PERMUTE_BYTES_CUH_
#define GEMMD_KERNELS_DEVICE_PTX_PERMUTE_BYTES_CUH_

#include <cstdint>

#include "kernels/device/portable.cuh"

namespace gemmd::device::ptx {

__host__ __device__ inline uint32_t PermuteBytes(uint32_t low, uint32_t high, uint32_t selectors) {
#ifdef __CUDA_ARCH__
  return __byte_perm(low, high, selectors);
#else
  const uint64_t bytes = static_cast<uint64_t>(high) << 32 | low;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t byte = selectors >> (4 * i) & 7u;
    result |= static_cast<uint32_t>(bytes >> (8 * byte) & 0xffu) << (8 * i);
  }
  return result;
#endif
}

}  // namespace gemmd::device::ptx

#endif  // GEMMD_KERNELS_DEVICE_PTX_PERMUTE_BYTES_CUH_
