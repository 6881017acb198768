// What    Memory path of the weights: codes -> float32 tile, decoded and scaled.
// Shapes  tile [kBlockN][kBlockK] (BlockTile); rows past N and columns past K are exact zeros,
// whatever
//         their scale would be.
// Sync    None: each thread writes its own elements; the caller synchronises the block before
// reading.
#ifndef GEMMD_KERNELS_DEVICE_WEIGHT_TILE_CUH_
#define GEMMD_KERNELS_DEVICE_WEIGHT_TILE_CUH_

#include "kernels/contract/gemm_args.h"
#include "kernels/device/block_tile.cuh"
#include "kernels/device/code_source.cuh"
#include "kernels/device/decode_number.cuh"
#include "kernels/device/weight_scaling.cuh"

namespace gemmd::device {

template <class Config>
struct WeightTile {
  using Tile = BlockTile<Config>;
  using Scaling = WeightScaling<Config>;

  __host__ __device__ static void Fill(const WeightArgs& args, int32_t expert, int32_t n0,
                                       int32_t k0, int thread, float* tile) {
    const int column = Tile::FillColumn(thread);
    const bool inside = column < args.k - k0;
    const int32_t k = k0 + column;
    const int32_t grid_column = inside ? Scaling::GridColumn(args, expert, k) : 0;
    GEMMD_UNROLL_BY_4
    for (int row = Tile::FillRow(thread); row < Config::kBlockN; row += Tile::kRowsPerPass) {
      const bool used = inside && row < args.n - n0;
      tile[row * Tile::kRowFloats + column] =
          used ? Load(args, expert, n0 + row, k, grid_column) : 0.0f;
    }
  }

 private:
  __host__ __device__ static float Load(const WeightArgs& args, int32_t expert, int32_t n,
                                        int32_t k, int32_t grid_column) {
    const uint32_t code = CodeSource<Config>::Load(args, expert, n, k);
    const float value = NumberDecoder<Config::kWeight>::Decode(code);
    return Scaling::Load(args, expert, n, grid_column).Apply(value);
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_WEIGHT_TILE_CUH_
