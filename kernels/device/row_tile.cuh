// What    Rows of one block tile: which expert, how many, which row of x each reads, which of y it
// writes. Shapes  `count` rows, 0 to kBlockM; 0 = nothing to do. Row r < count. Sync    None: reads
// the index arrays of GemmArgs.
#ifndef GEMMD_KERNELS_DEVICE_ROW_TILE_CUH_
#define GEMMD_KERNELS_DEVICE_ROW_TILE_CUH_

#include "kernels/contract/gemm_args.h"
#include "kernels/contract/row_mapping.h"
#include "kernels/device/portable.cuh"

namespace gemmd::device {

template <RowMapping kMapping, int kBlockM>
struct RowTile;

template <int kBlockM>
struct RowTile<RowMapping::kDense, kBlockM> {
  int32_t expert;
  int count;
  int64_t first;

  __host__ __device__ static RowTile Find(const GemmArgs& args, int64_t tile) {
    const int64_t first = tile * kBlockM;
    const int64_t left = args.m - first;
    return {0, left <= 0 ? 0 : static_cast<int>(Min<int64_t>(left, kBlockM)), first};
  }
  __host__ __device__ int64_t InputRow(const GemmArgs&, int row) const { return first + row; }
  __host__ __device__ int64_t OutputRow(const GemmArgs&, int row) const { return first + row; }
};

template <int kBlockM>
struct RowTile<RowMapping::kIndexed, kBlockM> {
  int32_t expert;
  int count;
  int64_t first;  // in sorted order

  __host__ __device__ static RowTile Find(const GemmArgs& args, int64_t tile) {
    const int32_t experts = args.weights.experts;
    if (tile >= args.tile_offsets[experts]) return {0, 0, 0};
    const int32_t expert = ExpertOf(args.tile_offsets, experts, tile);
    const int64_t first = args.row_offsets[expert] + (tile - args.tile_offsets[expert]) * kBlockM;
    const int64_t left = args.row_offsets[expert + 1] - first;
    return {expert, static_cast<int>(Min<int64_t>(left, kBlockM)), first};
  }
  __host__ __device__ int64_t InputRow(const GemmArgs& args, int row) const {
    return args.sorted_slots[first + row] / args.slots_per_input_row;
  }
  __host__ __device__ int64_t OutputRow(const GemmArgs& args, int row) const {
    return args.sorted_slots[first + row];
  }

 private:
  // The last expert whose first tile is not after `tile`; experts without rows have no tiles.
  __host__ __device__ static int32_t ExpertOf(const int64_t* tile_offsets, int32_t experts,
                                              int64_t tile) {
    int32_t low = 0;
    int32_t high = experts;
    while (high - low > 1) {
      const int32_t middle = low + (high - low) / 2;
      if (tile_offsets[middle] <= tile) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return low;
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_ROW_TILE_CUH_
