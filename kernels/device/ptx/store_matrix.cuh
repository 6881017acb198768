// What    stmatrix: four 8 x 8 matrices of 16-bit elements, as they are or transposed, from the registers
//         of a warp to shared memory; 16 bytes of it back.
// Shapes  Matrix i: lane l holds in a[i] the elements (row l/4, columns 2(l%4) and + 1). Lanes 8i to
//         8i + 7 give the addresses of its rows 0 to 7, transposed of its columns; each becomes 16 bytes
//         there.
// Sync    The whole warp; read by others after __syncwarp.
// Source  PTX ISA, stmatrix, ld.shared.
#ifndef GEMMD_KERNELS_DEVICE_PTX_STORE_MATRIX_CUH_
#define GEMMD_KERNELS_DEVICE_PTX_STORE_MATRIX_CUH_

#include <cstdint>

namespace gemmd::device::ptx {

__device__ __forceinline__ void StoreMatrices(uint32_t address, const uint32_t (&a)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
               : "memory");
}

__device__ __forceinline__ void StoreMatricesTransposed(uint32_t address, const uint32_t (&a)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
      "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])
      : "memory");
}

__device__ __forceinline__ uint4 LoadShared16(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

}  // namespace gemmd::device::ptx

#endif  // GEMMD_KERNELS_DEVICE_PTX_STORE_MATRIX_CUH_
