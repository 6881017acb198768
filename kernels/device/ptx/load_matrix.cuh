// What    ldmatrix: four 8 x 8 matrices of 16-bit elements (or 8 rows of 16 bytes) from shared memory to
//         the registers of a warp.
// Shapes  Lanes 8i to 8i + 7 give the addresses of rows 0 to 7 of matrix i. Lane l gets in a[i] bytes
//         4(l%4) to + 3 of row l/4.
// Sync    The whole warp.
// Source  PTX ISA, ldmatrix.
#ifndef GEMMD_KERNELS_DEVICE_PTX_LOAD_MATRIX_CUH_
#define GEMMD_KERNELS_DEVICE_PTX_LOAD_MATRIX_CUH_

#include <cstdint>

namespace gemmd::device::ptx {

__device__ __forceinline__ void LoadMatrices(uint32_t address, uint32_t (&a)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared::cta.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(address)
               : "memory");
}

}  // namespace gemmd::device::ptx

#endif  // GEMMD_KERNELS_DEVICE_PTX_LOAD_MATRIX_CUH_
