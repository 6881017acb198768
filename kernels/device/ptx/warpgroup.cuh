// What    Registers per thread of a warpgroup, a barrier over part of a block, one thread of a warp.
// Sync    SetRegisters: every warp of the warpgroup. ElectOne: the whole warp. NamedBarrier: `threads` threads, the same id.
// Source  PTX ISA, setmaxnreg, bar.sync, elect.sync.
#ifndef GEMMD_KERNELS_DEVICE_PTX_WARPGROUP_CUH_
#define GEMMD_KERNELS_DEVICE_PTX_WARPGROUP_CUH_

#include <cstdint>

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

// True in one thread of the warp, always the same. The compiler knows that, so that operands of bulk copies
// stay in uniform registers.
__device__ __forceinline__ bool ElectOne() {
  uint32_t elected;
  asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p;}" : "=r"(elected));
  return elected != 0;
}

}  // namespace gemmd::device::ptx

#endif  // GEMMD_KERNELS_DEVICE_PTX_WARPGROUP_CUH_
