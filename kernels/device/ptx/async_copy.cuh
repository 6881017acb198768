// What    Asynchronous copies from global to shared memory.
// Sync    BulkCopy adds its bytes to an mbarrier; Copy16 is followed by MbarrierArriveAfterCopies.
//         AsyncProxyFence lies between ordinary accesses of shared memory (Copy16 among them) and
//         those of wgmma or bulk copies.
// Source  PTX ISA, cp.async, cp.async.bulk, fence.proxy.
#ifndef GEMMD_KERNELS_DEVICE_PTX_ASYNC_COPY_CUH_
#define GEMMD_KERNELS_DEVICE_PTX_ASYNC_COPY_CUH_

#include <cstdint>

namespace gemmd::device::ptx {

// The first `bytes` (0 to 16) of 16 bytes, zeros for the rest. Both addresses are multiples of 16.
__device__ __forceinline__ void Copy16(uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}

// The first `bytes` (0 to 4) of 4 bytes, zeros for the rest. Both addresses are multiples of 4.
__device__ __forceinline__ void Copy4(uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void StoreShared16(uint32_t to, const uint32_t (&words)[4]) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]), "r"(words[1]),
               "r"(words[2]), "r"(words[3])
               : "memory");
}

// `bytes` and both addresses are multiples of 16.
__device__ __forceinline__ void BulkCopy(uint32_t to, const void* from, uint32_t bytes,
                                         uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], "
      "%2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

// The same to the same place of every block of the cluster in `ranks`, and to its barrier.
__device__ __forceinline__ void BulkCopyMulticast(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier,
                                                  uint32_t ranks, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      ".L2::cache_hint [%0], [%1], %2, [%3], %4, %5;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "h"(static_cast<uint16_t>(ranks)), "l"(policy)
      : "memory");
}

__device__ __forceinline__ uint64_t EvictFirstPolicy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ uint64_t EvictNormalPolicy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ void AsyncProxyFence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace gemmd::device::ptx

#endif  // GEMMD_KERNELS_DEVICE_PTX_ASYNC_COPY_CUH_
