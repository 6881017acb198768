// What    Which tile and which part of K a block of device/gemm_sm90.cuh or gemm_sm90_slab.cuh works on.
#ifndef GEMMD_KERNELS_DEVICE_TILE_PLACE_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_TILE_PLACE_SM90_CUH_

#include <cstdint>

#include "kernels/device/portable.cuh"
#include "kernels/device/ptx/cluster.cuh"
#include "kernels/device/sm90_tile.cuh"

namespace gemmd::device {

// Which part of K a block works on: stages `first`, `first + step`, ...
struct StageRangeSm90 {
  int32_t first;
  int32_t step;
};

// Which tiles a cluster works on: of w, counted in clusters, and of x. Blocks that run at the same time
// should share both, so the tiles of x go first, kTilesPerGroup at a time.
struct TilePlaceSm90 {
  static constexpr uint32_t kTilesPerGroup = 8;

  uint32_t cluster;
  uint32_t token_tile;

  // Number `index` of `clusters` tiles of w times `rows` tiles of x. In 32 bits: y of 2^32 tiles would take
  // terabytes, and a division of 64 is a function of 100 instructions.
  __device__ static TilePlaceSm90 Of(uint32_t index, uint32_t clusters, uint32_t rows) {
    if (rows == 1) return {index, 0};
    const uint32_t per_group = clusters * kTilesPerGroup;
    const uint32_t first = index / per_group * kTilesPerGroup;
    const uint32_t within = index % per_group;
    const uint32_t height = Min(kTilesPerGroup, rows - first);
    return {within / height, first + within % height};
  }
};

// Which block of its cluster a block is.
template <class Config>
struct ClusterPlaceSm90 {
  static constexpr uint32_t kPartners = Sm90Tile<Config>::kPartners;

  uint32_t sharer;  // of the blocks that share tiles of x or w
  uint32_t part;
  uint32_t parts;

  __device__ static ClusterPlaceSm90 Mine() {
    const uint32_t rank = ptx::ClusterRank();
    return {rank % kPartners, rank / kPartners, ptx::ClusterSize() / kPartners};
  }
  __device__ uint32_t blocks() const { return parts * kPartners; }
  __device__ uint32_t first_rank() const { return part * kPartners; }
  __device__ StageRangeSm90 range() const {
    return {static_cast<int32_t>(part), static_cast<int32_t>(parts)};
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_TILE_PLACE_SM90_CUH_
