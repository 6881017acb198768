// What    acc += x tile * w tile^T over one block_k, with one or two TF32 terms per operand.
// Keys    The products of one block_k are summed by the matrix unit from zero, and that sum is
// added to the
//         accumulators by an ordinary float32 add: the unit's own alignment loss never meets a long
//         sum.
// Sync    Every thread of the block calls it; the operand tiles must be filled and stay unchanged.
// Source  kernels/device/README.md, "Two terms".
#ifndef GEMMD_KERNELS_DEVICE_TILE_PRODUCT_CUH_
#define GEMMD_KERNELS_DEVICE_TILE_PRODUCT_CUH_

#include "kernels/device/warp_tile.cuh"

namespace gemmd::device {

// `Mma::Multiply(d, a, b)` is the matrix instruction; the CPU tests put their own in its place.
template <class Config, class Mma>
struct TileProduct {
  using Warp = WarpTile<Config>;
  using Accumulators = typename Warp::Accumulators;

  __host__ __device__ static void Clear(Accumulators& acc) {
    GEMMD_UNROLL
    for (int i = 0; i < Warp::kStepsM; ++i) {
      GEMMD_UNROLL
      for (int j = 0; j < Warp::kStepsN; ++j) {
        GEMMD_UNROLL
        for (int c = 0; c < 4; ++c) acc.value[i][j][c] = 0;
      }
    }
  }

  __host__ __device__ static void Add(const Accumulators& from, Accumulators& to) {
    GEMMD_UNROLL
    for (int i = 0; i < Warp::kStepsM; ++i) {
      GEMMD_UNROLL
      for (int j = 0; j < Warp::kStepsN; ++j) {
        GEMMD_UNROLL
        for (int c = 0; c < 4; ++c) to.value[i][j][c] += from.value[i][j][c];
      }
    }
  }

  // One fragment product, all its terms.
  template <class Fragment>
  __host__ __device__ static void MultiplyTerms(const typename Warp::OperandA& a,
                                                const typename Warp::OperandB& b,
                                                bool split_activations, Fragment& d) {
    Mma::Multiply(d, a.high, b.high);
    if constexpr (Config::kWeightTerms == 2) Mma::Multiply(d, a.finite, b.low);
    if (split_activations) {
      Mma::Multiply(d, a.low, b.finite);
      if constexpr (Config::kWeightTerms == 2) Mma::Multiply(d, a.low, b.low);
    }
  }

  __host__ __device__ static void Accumulate(const Warp& warp, const float* x_tile,
                                             const float* w_tile, bool split_activations,
                                             Accumulators& acc) {
    Accumulators partial;
    Clear(partial);
    GEMMD_NO_UNROLL  // a quarter of the code, and of its compile time
        for (int k = 0; k < Config::kBlockK; k += Warp::kMmaK) {
      typename Warp::OperandB b[Warp::kStepsN];
      GEMMD_UNROLL
      for (int j = 0; j < Warp::kStepsN; ++j) b[j] = warp.LoadB(w_tile, j, k);
      GEMMD_UNROLL
      for (int i = 0; i < Warp::kStepsM; ++i) {
        const typename Warp::OperandA a = warp.LoadA(x_tile, i, k);
        GEMMD_UNROLL
        for (int j = 0; j < Warp::kStepsN; ++j) {
          MultiplyTerms(a, b[j], split_activations, partial.value[i][j]);
        }
      }
    }
    Add(partial, acc);
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_TILE_PRODUCT_CUH_
