// What    Ordering of wgmma.mma_async, and the descriptor of its shared-memory operand.
// Sync    Fence before the first wgmma that uses registers written since; Commit after the last of
//         a group; Wait<n> until at most n groups are in flight. All by the whole warpgroup.
// Source  PTX ISA, asynchronous warpgroup-level matrix instructions.
#ifndef GEMMD_KERNELS_DEVICE_PTX_WGMMA_SYNC_CUH_
#define GEMMD_KERNELS_DEVICE_PTX_WGMMA_SYNC_CUH_

#include <cstdint>

namespace gemmd::device::ptx {

// The compiler moves no computation of `value` past this line. wgmma reads and writes registers after its
// statement, which the compiler does not know.
__device__ __forceinline__ void PinRegister(uint32_t& value) {
  asm volatile("" : "+r"(value)::"memory");
}
__device__ __forceinline__ void PinRegister(int32_t& value) {
  asm volatile("" : "+r"(value)::"memory");
}
__device__ __forceinline__ void PinRegister(float& value) {
  asm volatile("" : "+f"(value)::"memory");
}

__device__ __forceinline__ void WgmmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void WgmmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int kLeft>
__device__ __forceinline__ void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

// K-major tile of 128-byte rows, swizzled over 128 bytes, 8 rows to 1024 bytes. `address` is a multiple of
// 1024 for the first k16 step; each further step of a row adds kDescriptorStep.
__device__ __forceinline__ constexpr uint64_t SwizzledTileDescriptor(uint32_t address) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kStrideOf8Rows = uint64_t{1024 >> 4} << 32;
  constexpr uint64_t kUnusedLeadingStride = uint64_t{1} << 16;
  return ((address & 0x3ffffu) >> 4) | kUnusedLeadingStride | kStrideOf8Rows | kSwizzle128;
}
inline constexpr uint64_t kDescriptorStep =
    32 >> 4;  // the 32 bytes of a row that one instruction reads

}  // namespace gemmd::device::ptx

#endif  // GEMMD_KERNELS_DEVICE_PTX_WGMMA_SYNC_CUH_
