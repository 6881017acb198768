// What    A descriptor of ptx/wgmma_sync.cuh in uniform registers: one made from an address anew costs four
//         instructions in the loop, what is added to this one costs one.
// Sync    Of() by a whole warp.
#ifndef GEMMD_KERNELS_DEVICE_PTX_UNIFORM_DESCRIPTOR_CUH_
#define GEMMD_KERNELS_DEVICE_PTX_UNIFORM_DESCRIPTOR_CUH_

#include <cstdint>

#include "kernels/device/ptx/wgmma_sync.cuh"

namespace gemmd::device::ptx {

struct UniformTileDescriptor {
  uint32_t low;

  // Of lane 0's `address`, as SwizzledTileDescriptor takes it.
  __device__ static UniformTileDescriptor Of(uint32_t address) {
    const auto of_lane = static_cast<uint32_t>(SwizzledTileDescriptor(address));
    return {__shfl_sync(0xffffffffu, of_lane, 0)};
  }

  // `bytes`: a multiple of 16, to another place in the block's shared memory. Addresses of the block fit their
  // field, so nothing is carried.
  __device__ UniformTileDescriptor Plus(uint32_t bytes) const {
    return {low + (bytes >> 4)};
  }
  __device__ uint64_t descriptor() const {
    constexpr uint64_t kHigh = SwizzledTileDescriptor(0) >> 32 << 32;
    return kHigh | low;
  }
};

}  // namespace gemmd::device::ptx

#endif  // GEMMD_KERNELS_DEVICE_PTX_UNIFORM_DESCRIPTOR_CUH_
