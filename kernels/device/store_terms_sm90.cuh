// What    Fetches into L2 what the store of a tile multiplies its sums with and adds to them: channel
//         factors and biases of its rows of w, scales of its rows of x, the static scale of x. With a cold L2
//         the store would wait for them once the last product is there.
// Shapes  kRows rows of w from `first_row` on, kTokens rows of x from `first_token` on; beyond the matrix
//         nothing is read.
// Sync    None; `thread` of the tile's math threads. Scales of x are what the kernel in front wrote:
//         after ptx::GridDependencyWait.
#ifndef GEMMD_KERNELS_DEVICE_STORE_TERMS_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_STORE_TERMS_SM90_CUH_

#include "kernels/contract/gemm_args.h"
#include "kernels/device/ptx/prefetch.cuh"
#include "kernels/device/sm90_tile.cuh"

namespace gemmd::device {

template <class Config>
__device__ __forceinline__ void PrefetchStoreTermsSm90(const GemmArgs& args, int64_t first_token,
                                                       int32_t first_row, int thread) {
  constexpr int kLineFloats = 32;
  using Tile = Sm90Tile<Config>;
  static_assert(Config::kTokens <= Tile::kMathThreads && Tile::kRows <= Tile::kMathThreads, "one line a thread");
  const WeightArgs& weights = args.weights;
  const int32_t row = first_row + thread * kLineFloats;
  if (thread * kLineFloats < Tile::kRows && row < weights.n) {
    if (weights.channel_factor != nullptr) ptx::PrefetchL2(weights.channel_factor + row);
    if (weights.bias != nullptr) {  // of four bytes at most
      ptx::PrefetchL2(static_cast<const char*>(weights.bias) +
                      static_cast<int64_t>(row) * ElementBytes(weights.bias_type));
    }
  }
  if (thread == 0 && weights.activation_scale != nullptr) ptx::PrefetchL2(weights.activation_scale);
  const int64_t token = first_token + thread;
  if (args.row_scale != nullptr && thread < Config::kTokens && token < args.m) {
    ptx::PrefetchL2(args.row_scale + token * args.row_scale_stride);
  }
}

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_STORE_TERMS_SM90_CUH_
