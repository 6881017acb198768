// What    Registers per thread of a warpgroup, and a barrier over part of a block.
// Sync    SetRegisters: every warp of the warpgroup. NamedBarrier: `threads` threads, the same id.
// Source  PTX ISA, setmaxnreg, bar.sync.
#ifndef GEMMD_KERNELS_DEVICE_PTX_WARPGROUP_CUH_
#define GEMMD_KERNELS_DEVICE_PTX_WARPGROUP_CUH_

namespace gemmd::device::ptx {

template <int kRegisters>
__device__ __forceinline__ void RaiseRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void LowerRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kId, int kThreads>
__device__ __forceinline__ void NamedBarrier() {
  asm volatile("bar.sync %0, %1;" ::"n"(kId), "n"(kThreads) : "memory");
}

// Counts as one of the `kThreads` without waiting for the others.
template <int kId, int kThreads>
__device__ __forceinline__ void NamedBarrierArrive() {
  asm volatile("bar.arrive %0, %1;" ::"n"(kId), "n"(kThreads) : "memory");
}

}  // namespace gemmd::device::ptx

#endif  // GEMMD_KERNELS_DEVICE_PTX_WARPGROUP_CUH_
