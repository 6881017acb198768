// What    Copies of a box of a two-dimensional tensor from global to shared memory, with the map's
//         swizzle; what lies outside the tensor becomes zeros.
// Shapes  `column` is the coordinate along the contiguous dimension, in elements.
// Sync    Adds the bytes of the whole box to the mbarrier. Multicast: to the same place, and the
//         mbarrier of the same place, in every block of the cluster whose bit of `ranks` is set.
// Source  PTX ISA, cp.async.bulk.tensor.
#ifndef GEMMD_KERNELS_DEVICE_PTX_TENSOR_COPY_CUH_
#define GEMMD_KERNELS_DEVICE_PTX_TENSOR_COPY_CUH_

#include <cstdint>

namespace gemmd::device::ptx {

__device__ __forceinline__ void PrefetchTensorMap(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ __forceinline__ void TensorCopy2d(uint32_t to, const void* map, int32_t column,
                                             int32_t row, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void TensorCopy2dMulticast(uint32_t to, const void* map, int32_t column,
                                                      int32_t row, uint32_t barrier,
                                                      uint32_t ranks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier), "h"(static_cast<uint16_t>(ranks))
      : "memory");
}

// From shared memory; rows outside the matrix are not written, nor columns, but for those that fill up 16 bytes.
// What ordinary stores wrote there lies behind an AsyncProxyFence of the threads that wrote, and a barrier.
__device__ __forceinline__ void TensorStore2d(const void* map, int32_t column, int32_t row, uint32_t from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
               "r"(column), "r"(row), "r"(from)
               : "memory");
}

// Makes one group of what the thread has started.
__device__ __forceinline__ void TensorStoresCommit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Until nothing of the thread's groups reads shared memory any more.
__device__ __forceinline__ void TensorStoresWaitRead() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

}  // namespace gemmd::device::ptx

#endif  // GEMMD_KERNELS_DEVICE_PTX_TENSOR_COPY_CUH_
