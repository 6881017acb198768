// What    Slots sorted by expert, in three kernels: count, prefix sum, scatter. Absent slots are
// left out. Shapes  Any number of experts; slots up to 2^32 - 1. MoeCount and MoeScatter: any grid
// and block;
//         MoePrefix: one block of kPrefixThreads.
// Keys    The order of slots within an expert is not fixed. No result depends on it: every row of
// the
//         GEMMs is computed alone and stored by its slot.
// Sync    The kernels follow each other on one stream. `counts` is zero before MoeCount.
#ifndef GEMMD_KERNELS_DEVICE_MOE_SORT_CUH_
#define GEMMD_KERNELS_DEVICE_MOE_SORT_CUH_

#include "kernels/device/moe_slots.cuh"

namespace gemmd::device {

inline constexpr int kPrefixThreads = 256;

#ifdef __CUDACC__

__device__ inline int64_t GlobalThread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline int64_t GridThreads() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

__global__ void MoeCount(const __grid_constant__ MoeSortArgs args) {
  const int64_t slots = SlotCount(args.routing);
  for (int64_t slot = GlobalThread(); slot < slots; slot += GridThreads()) {
    const int32_t expert = ExpertOfSlot(args.routing, slot);
    if (expert != kAbsent) atomicAdd(args.counts + expert, 1ull);
  }
}

struct RowsAndTiles {
  int64_t rows;
  int64_t tiles;
};

// Inclusive sums over the block.
__device__ inline RowsAndTiles ScanBlock(RowsAndTiles value, RowsAndTiles* scratch) {
  scratch[threadIdx.x] = value;
  __syncthreads();
  for (int distance = 1; distance < kPrefixThreads; distance *= 2) {
    const bool adds = static_cast<int>(threadIdx.x) >= distance;
    const RowsAndTiles before = adds ? scratch[threadIdx.x - distance] : RowsAndTiles{0, 0};
    __syncthreads();
    value.rows += before.rows;
    value.tiles += before.tiles;
    scratch[threadIdx.x] = value;
    __syncthreads();
  }
  return value;
}

// counts -> row_offsets and tile_offsets; counts become the first free position of each expert.
__global__ void __launch_bounds__(kPrefixThreads)
    MoePrefix(const __grid_constant__ MoeSortArgs args) {
  __shared__ RowsAndTiles scratch[kPrefixThreads];
  RowsAndTiles base{0, 0};
  for (int32_t first = 0; first < args.routing.experts; first += kPrefixThreads) {
    const int32_t expert = first + static_cast<int32_t>(threadIdx.x);
    const bool used = expert < args.routing.experts;
    const int64_t rows = used ? static_cast<int64_t>(args.counts[expert]) : 0;
    const int64_t tiles = (rows + args.block_m - 1) / args.block_m;
    const RowsAndTiles sum = ScanBlock({rows, tiles}, scratch);
    if (used) {
      args.counts[expert] = base.rows + sum.rows - rows;
      args.row_offsets[expert] = base.rows + sum.rows - rows;
      args.tile_offsets[expert] = base.tiles + sum.tiles - tiles;
    }
    base.rows += scratch[kPrefixThreads - 1].rows;
    base.tiles += scratch[kPrefixThreads - 1].tiles;
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    args.row_offsets[args.routing.experts] = base.rows;
    args.tile_offsets[args.routing.experts] = base.tiles;
  }
}

__global__ void MoeScatter(const __grid_constant__ MoeSortArgs args) {
  const int64_t slots = SlotCount(args.routing);
  for (int64_t slot = GlobalThread(); slot < slots; slot += GridThreads()) {
    const int32_t expert = ExpertOfSlot(args.routing, slot);
    if (expert == kAbsent) continue;
    args.sorted_slots[atomicAdd(args.counts + expert, 1ull)] = static_cast<uint32_t>(slot);
  }
}

#endif  // __CUDACC__

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_MOE_SORT_CUH_
