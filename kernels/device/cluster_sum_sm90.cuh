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
#include "kernels/device/narrow_store.cuh"
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

  // The same for sums of TokenProductSm90, from token `first_token` and row `first_row` of the tile on.
  template <int kSums>
  __device__ static void PutTokens(float* sums, int first_token, int first_row, int lane,
                                   const float (&d)[kSums]) {
    float* const mine = sums + (first_token + lane / 32 * 16 + lane % 32 / 4) * Tile::kSumStride +
                        first_row + lane % 4 * 2;
    GEMMD_UNROLL
    for (int j = 0; j < kSums / 4; ++j) {
      GEMMD_UNROLL
      for (int half = 0; half < 2; ++half) {
        *reinterpret_cast<float2*>(mine + half * 8 * Tile::kSumStride + 8 * j) = {
            d[4 * j + 2 * half], d[4 * j + 2 * half + 1]};
      }
    }
  }

  // `parts` blocks: this one is `part`, and part p has rank first_rank + p * kPartners.
  __device__ static void Store(const GemmArgs& args, uint32_t sums, int64_t first_token,
                               int32_t first_row, uint32_t first_rank, uint32_t part,
                               uint32_t parts, int thread) {
    const int row = thread % kVectorsPerToken * kVector;
    if (first_row + row >= args.weights.n) return;
    const RowTerms rows = RowTerms::Of(args.weights, first_row + row);
    const int tokens = static_cast<int>(Min<int64_t>(args.m - first_token, Config::kTokens));
    const int step = static_cast<int>(parts) * kTokensPerPass;
    int token = static_cast<int>(part) * kTokensPerPass + thread / kVectorsPerToken;
    for (; token < tokens; token += kBatch * step) {
      uint32_t addresses[kBatch];  // beyond the tile: of another sum
      GEMMD_UNROLL
      for (int b = 0; b < kBatch; ++b) {
        const int at = token + b * step < tokens ? token + b * step : token;
        addresses[b] = sums + (at * Tile::kSumStride + row) * 4;
      }
      float4 sum[kBatch];
      Add(addresses, first_rank, parts, sum);
      GEMMD_UNROLL
      for (int b = 0; b < kBatch; ++b) {
        if (token + b * step >= tokens) break;
        StoreFour(args, first_token + token + b * step, first_row + row, rows, sum[b]);
      }
    }
  }

 private:
  static constexpr int kTokensPerPass = Tile::kMathThreads / kVectorsPerToken;
  static constexpr int kBatch = Config::kTokens >= 64 ? 4 : 1;  // tokens whose reads overlap
  static_assert(Tile::kMathThreads % kVectorsPerToken == 0, "a thread's rows stay the same");

  // What is added to and multiplied with four rows of w.
  struct RowTerms {
    float factor[kVector];
    float bias[kVector];

    __device__ static RowTerms Of(const WeightArgs& weights, int32_t row) {
      RowTerms terms;
      GEMMD_UNROLL
      for (int i = 0; i < kVector; ++i) {
        const int32_t n = Min(row + i, weights.n - 1);
        terms.factor[i] = weights.channel_factor == nullptr ? 1.0f : weights.channel_factor[n];
        terms.bias[i] =
            weights.bias == nullptr ? 0.0f : LoadWideElement(weights.bias_type, weights.bias, n);
      }
      return terms;
    }
  };

  __device__ static void Add(const uint32_t (&addresses)[kBatch], uint32_t first_rank,
                             uint32_t parts, float4 (&sum)[kBatch]) {
    GEMMD_UNROLL
    for (int b = 0; b < kBatch; ++b) sum[b] = {0, 0, 0, 0};
    for (uint32_t p = 0; p < parts; ++p) {
      const uint32_t rank = first_rank + p * Tile::kPartners;
      GEMMD_UNROLL
      for (int group = 0; group < Config::kColumnGroups; ++group) {
        float4 v[kBatch];
        GEMMD_UNROLL
        for (int b = 0; b < kBatch; ++b) {
          v[b] =
              ptx::LoadCluster(ptx::MapToRank(addresses[b], rank) + group * Tile::kSumFloats * 4);
        }
        GEMMD_UNROLL
        for (int b = 0; b < kBatch; ++b) {
          sum[b].x += v[b].x;
          sum[b].y += v[b].y;
          sum[b].z += v[b].z;
          sum[b].w += v[b].w;
        }
      }
    }
  }

  __device__ static void StoreFour(const GemmArgs& args, int64_t token, int32_t row,
                                   const RowTerms& rows, const float4& sum) {
    float values[kVector] = {sum.x, sum.y, sum.z, sum.w};
    // A channel's factor times kSumFactor could be beyond float32.
    float factor = Tile::kSumFactor;
    if (args.row_scale != nullptr) factor *= args.row_scale[token * args.row_scale_stride];
    if (args.weights.activation_scale != nullptr) factor *= *args.weights.activation_scale;
    GEMMD_UNROLL
    for (int i = 0; i < kVector; ++i) {
      values[i] = values[i] * rows.factor[i] * factor + rows.bias[i];
    }
    const int64_t at = token * args.y_row_stride + row;
    if (args.y_type == ElementType::kFloat32) {
      StoreElements(static_cast<float*>(args.y) + at, values, args.weights.n - row);
      return;
    }
    uint16_t* const to = static_cast<uint16_t*>(args.y) + at;
    uint32_t pairs[kVector / 2];
    NarrowPairs(args.y_type, values, pairs);
    if (row + kVector <= args.weights.n && reinterpret_cast<uint64_t>(to) % sizeof(uint2) == 0) {
      *reinterpret_cast<uint2*>(to) = {pairs[0], pairs[1]};
      return;
    }
    const uint16_t elements[kVector] = {
        static_cast<uint16_t>(pairs[0]), static_cast<uint16_t>(pairs[0] >> 16),
        static_cast<uint16_t>(pairs[1]), static_cast<uint16_t>(pairs[1] >> 16)};
    StoreElements(to, elements, args.weights.n - row);
  }

  // At most `count` of them.
  template <typename Element>
  __device__ static void StoreElements(Element* to, const Element (&elements)[kVector],
                                       int32_t count) {
    GEMMD_UNROLL
    for (int i = 0; i < kVector; ++i) {
      if (i < count) to[i] = elements[i];
    }
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_CLUSTER_SUM_SM90_CUH_
