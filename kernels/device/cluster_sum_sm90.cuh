// What    Adds the sums of the blocks that work on one tile (each has summed its part of K) in the
//         order of their parts, and stores y: channel factor, row factor, bias, one rounding.
// Shapes  Every block's shared memory holds [kColumnGroups][kTokens][kSumStride] float32. The
//         elements are dealt to the blocks four rows of w at a time.
// Keys    Fixed order: the same bits every time.
// Sync    Between two cluster barriers: sums are complete before, nobody leaves until all have
//         read.
#ifndef GEMMD_KERNELS_DEVICE_CLUSTER_SUM_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_CLUSTER_SUM_SM90_CUH_

#include "kernels/contract/gemm_args.h"
#include "kernels/device/element.cuh"
#include "kernels/device/ptx/cluster.cuh"
#include "kernels/device/sm90_tile.cuh"

namespace gemmd::device {

template <class Config>
struct ClusterSumSm90 {
  using Tile = Sm90Tile<Config>;
  static constexpr int kVector = 4;
  static constexpr int kVectorsPerToken = Tile::kRows / kVector;

  // Writes the accumulators of one thread of warpgroup `group`.
  template <typename Sum>
  __device__ static void Put(float* sums, int group, int lane,
                             const Sum (&d)[Config::kTokens / 2]) {
    const int row =
        group % Config::kRowGroups * PackedLayout::kUnitRows + lane / 32 * 16 + lane % 32 / 4;
    float* const mine = sums + group / Config::kRowGroups * Tile::kSumFloats +
                        lane % 4 * 2 * Tile::kSumStride + row;
    GEMMD_UNROLL
    for (int j = 0; j < Config::kTokens / 8; ++j) {
      GEMMD_UNROLL
      for (int c = 0; c < 4; ++c) {
        mine[(8 * j + c % 2) * Tile::kSumStride + c / 2 * 8] = static_cast<float>(d[4 * j + c]);
      }
    }
  }

  // `parts` blocks: this one is `part`, and part p has rank first_rank + p * kSharers.
  __device__ static void Store(const GemmArgs& args, uint32_t sums, int64_t first_token,
                               int32_t first_row, uint32_t first_rank, uint32_t part,
                               uint32_t parts, int thread) {
    const int tokens = static_cast<int>(Min<int64_t>(args.m - first_token, Config::kTokens));
    const int step = static_cast<int>(parts) * Tile::kMathThreads;
    for (int i = static_cast<int>(part) * Tile::kMathThreads + thread;
         i < tokens * kVectorsPerToken; i += step) {
      const int token = i / kVectorsPerToken;
      const int row = i % kVectorsPerToken * kVector;
      if (first_row + row >= args.weights.n) continue;
      const float4 sum = Sum(sums + (token * Tile::kSumStride + row) * 4, first_rank, parts);
      StoreFour(args, first_token + token, first_row + row, sum);
    }
  }

 private:
  __device__ static float4 Sum(uint32_t address, uint32_t first_rank, uint32_t parts) {
    float4 sum = {0, 0, 0, 0};
    GEMMD_UNROLL_BY_4
    for (uint32_t p = 0; p < parts; ++p) {
      const uint32_t part = ptx::MapToRank(address, first_rank + p * Config::kSharers);
      GEMMD_UNROLL
      for (int group = 0; group < Config::kColumnGroups; ++group) {
        const float4 v = ptx::LoadCluster(part + group * Tile::kSumFloats * 4);
        sum.x += v.x;
        sum.y += v.y;
        sum.z += v.z;
        sum.w += v.w;
      }
    }
    return sum;
  }

  __device__ static void StoreFour(const GemmArgs& args, int64_t token, int32_t row,
                                   const float4& sum) {
    const WeightArgs& weights = args.weights;
    const float values[kVector] = {sum.x, sum.y, sum.z, sum.w};
    float factor = args.row_scale == nullptr ? 1.0f : args.row_scale[token * args.row_scale_stride];
    if (weights.activation_scale != nullptr) factor *= *weights.activation_scale;
    GEMMD_UNROLL
    for (int i = 0; i < kVector; ++i) {
      const int32_t n = row + i;
      if (n >= weights.n) return;
      float value = values[i];
      if (weights.channel_factor != nullptr) value *= weights.channel_factor[n];
      value *= factor;
      if (weights.bias != nullptr) value += LoadWideElement(weights.bias_type, weights.bias, n);
      StoreElement(args.y_type, args.y, token * args.y_row_stride + n, value);
    }
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_CLUSTER_SUM_SM90_CUH_
