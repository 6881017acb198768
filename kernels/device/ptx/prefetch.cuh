// What    Asks for the L2 line of `address` in global memory; nothing waits for it.
// Source  PTX ISA, prefetch.
#ifndef GEMMD_KERNELS_DEVICE_PTX_PREFETCH_CUH_
#define GEMMD_KERNELS_DEVICE_PTX_PREFETCH_CUH_

namespace gemmd::device::ptx {

__device__ __forceinline__ void PrefetchL2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

}  // namespace gemmd::device::ptx

#endif  // GEMMD_KERNELS_DEVICE_PTX_PREFETCH_CUH_
