// What    mbarrier in shared memory: counts arrivals and bytes of asynchronous copies.
// Sync    A phase completes when `arrivals` threads arrived and all expected bytes are there. Wait
//         returns when the phase of `parity` is complete; writes before the arrivals are visible.
// Source  PTX ISA, mbarrier.
#ifndef GEMMD_KERNELS_DEVICE_PTX_MBARRIER_CUH_
#define GEMMD_KERNELS_DEVICE_PTX_MBARRIER_CUH_

#include <cstdint>

namespace gemmd::device::ptx {

__device__ __forceinline__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void MbarrierInit(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to asynchronous copies; once, by the initialising thread.
__device__ __forceinline__ void MbarrierInitFence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void MbarrierArrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// `count` arrivals at once.
__device__ __forceinline__ void MbarrierArriveTimes(uint32_t barrier, int count) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

// At a barrier of another block of the cluster (ptx::MapToRank). Orders what this thread read of its own
// block's memory; a release to the cluster would cost a fence of the whole GPU.
__device__ __forceinline__ void MbarrierArriveRemote(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void MbarrierArriveRemoteTimes(uint32_t barrier, int count) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ __forceinline__ void MbarrierArriveExpect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// One arrival when all cp.async of this thread so far have landed.
__device__ __forceinline__ void MbarrierArriveAfterCopies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ bool MbarrierTryWait(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

__device__ __forceinline__ void MbarrierWait(uint32_t barrier, uint32_t parity) {
  while (!MbarrierTryWait(barrier, parity)) {
  }
}

}  // namespace gemmd::device::ptx

#endif  // GEMMD_KERNELS_DEVICE_PTX_MBARRIER_CUH_
