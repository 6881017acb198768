// What    Thread block clusters: rank, size, barrier, and reads of another block's shared memory.
// Sync    ClusterSync orders shared-memory writes before it and reads after it; threads that have
//         exited do not count.
// Source  PTX ISA, barrier.cluster, mapa.
#ifndef GEMMD_KERNELS_DEVICE_PTX_CLUSTER_CUH_
#define GEMMD_KERNELS_DEVICE_PTX_CLUSTER_CUH_

#include <cstdint>

namespace gemmd::device::ptx {

__device__ __forceinline__ uint32_t ClusterRank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ uint32_t ClusterSize() {
  uint32_t size;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  return size;
}

__device__ __forceinline__ void ClusterArrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

// Orders no memory: for lifetimes, and for barriers made visible by MbarrierInitFence.
__device__ __forceinline__ void ClusterArriveRelaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

__device__ __forceinline__ void ClusterWait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The address of `address` in the shared memory of block `rank`.
__device__ __forceinline__ uint32_t MapToRank(uint32_t address, uint32_t rank) {
  uint32_t mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

__device__ __forceinline__ float4 LoadCluster(uint32_t address) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

}  // namespace gemmd::device::ptx

#endif  // GEMMD_KERNELS_DEVICE_PTX_CLUSTER_CUH_
