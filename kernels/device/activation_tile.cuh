// What    Memory path of the activations: x -> float32 tile, group scales applied. Element loads,
// so any
//         alignment and stride works.
// Shapes  tile [kBlockM][kBlockK] (BlockTile); rows past the row tile and columns past K are exact
// zeros. Sync    None: each thread writes its own elements; the caller synchronises the block
// before reading.
#ifndef GEMMD_KERNELS_DEVICE_ACTIVATION_TILE_CUH_
#define GEMMD_KERNELS_DEVICE_ACTIVATION_TILE_CUH_

#include "kernels/contract/gemm_args.h"
#include "kernels/device/block_tile.cuh"
#include "kernels/device/element.cuh"

namespace gemmd::device {

template <class Config>
struct ActivationTile {
  using Tile = BlockTile<Config>;

  template <class Rows>
  __host__ __device__ static void Fill(const GemmArgs& args, const Rows& rows, int32_t k0,
                                       int thread, float* tile) {
    const int column = Tile::FillColumn(thread);
    const int64_t k = static_cast<int64_t>(k0) + column;
    const bool inside = k < args.weights.k;
    GEMMD_UNROLL_BY_4
    for (int row = Tile::FillRow(thread); row < Config::kBlockM; row += Tile::kRowsPerPass) {
      const bool used = inside && row < rows.count;
      tile[row * Tile::kRowFloats + column] = used ? Load(args, rows.InputRow(args, row), k) : 0.0f;
    }
  }

 private:
  __host__ __device__ static float Load(const GemmArgs& args, int64_t row, int64_t k) {
    const float value = LoadElement(args.x_type, args.x, row * args.x_row_stride + k);
    if (args.group_scale == nullptr) return value;
    const int64_t group = static_cast<int32_t>(k) / args.group_scale_columns;
    return value * args.group_scale[row * args.group_scale_stride + group];
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_ACTIVATION_TILE_CUH_
