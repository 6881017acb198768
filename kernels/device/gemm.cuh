// What    The generic GEMM kernel: y = x * w^T for every StandardTensor, any M, N, K, dense or
// indexed. Shapes  Grid: x = block tiles of rows, y = block tiles of N (the block strides over the
// rest); block:
//         BlockTile::kThreads. Arguments: contract/gemm_args.h.
// Keys    One order along K whatever M is: a row's bits depend on that row alone, and every run
// gives the
//         same bits.
// Sync    Two buffers: the block fills one while it multiplies the other, one barrier per block_k.
#ifndef GEMMD_KERNELS_DEVICE_GEMM_CUH_
#define GEMMD_KERNELS_DEVICE_GEMM_CUH_

#include "kernels/device/activation_tile.cuh"
#include "kernels/device/epilogue.cuh"
#include "kernels/device/ptx/mma_m16n8k8_tf32.cuh"
#include "kernels/device/row_tile.cuh"
#include "kernels/device/tile_product.cuh"
#include "kernels/device/weight_tile.cuh"

namespace gemmd::device {

struct MmaSm80 {
  __device__ static void Multiply(float (&d)[4], const float (&a)[4], const float (&b)[2]) {
    ptx::MmaM16N8K8Tf32(d, a, b);
  }
};

// One block at least: else ptxas gives up registers of some configs, and spills, for one block more.
template <class Config>
__global__ void __launch_bounds__(BlockTile<Config>::kThreads, 1)
    Gemm(const __grid_constant__ GemmArgs args) {
  using Tile = BlockTile<Config>;
  using Rows = RowTile<Config::kRowMapping, Config::kBlockM>;
  using Warp = WarpTile<Config>;
  using Product = TileProduct<Config, MmaSm80>;
  __shared__ float x_tile[2][Tile::kActivationFloats];
  __shared__ float w_tile[2][Tile::kWeightFloats];

  const int thread = threadIdx.x;
  const Rows rows = Rows::Find(args, blockIdx.x);
  if (rows.count == 0) return;
  const Warp warp = Warp::Of(thread);
  const bool split_activations = args.split_activations != 0;
  const int32_t k_end = args.weights.k;

  const auto fill = [&](int64_t n0, int32_t k0, int buffer) {
    ActivationTile<Config>::Fill(args, rows, k0, thread, x_tile[buffer]);
    WeightTile<Config>::Fill(args.weights, rows.expert, static_cast<int32_t>(n0), k0, thread,
                             w_tile[buffer]);
  };

  const int64_t n_step = static_cast<int64_t>(gridDim.y) * Config::kBlockN;
  for (int64_t n0 = static_cast<int64_t>(blockIdx.y) * Config::kBlockN; n0 < args.weights.n;
       n0 += n_step) {
    typename Warp::Accumulators acc;
    Product::Clear(acc);
    int buffer = 0;
    // The first step only fills: the code of `fill` exists once.
    for (int32_t k0 = -Config::kBlockK; k0 < k_end; k0 += Config::kBlockK, buffer ^= 1) {
      if (k0 < k_end - Config::kBlockK) fill(n0, k0 + Config::kBlockK, buffer ^ 1);
      if (k0 >= 0) {
        Product::Accumulate(warp, x_tile[buffer], w_tile[buffer], split_activations, acc);
      }
      __syncthreads();
    }
    Epilogue<Config>::Store(args, rows, warp, static_cast<int32_t>(n0), acc);
  }
}

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_GEMM_CUH_
