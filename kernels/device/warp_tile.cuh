// What    One warp's share of a block tile as m16n8k8 fragments: what each lane loads and holds.
// Shapes  kStepsM x kStepsN accumulator fragments of 16 x 8; lane layout: ptx/mma_m16n8k8_tf32.cuh.
// Sync    None. Loads read the operand tiles in shared memory; the block must have filled them.
#ifndef GEMMD_KERNELS_DEVICE_WARP_TILE_CUH_
#define GEMMD_KERNELS_DEVICE_WARP_TILE_CUH_

#include "kernels/device/block_tile.cuh"
#include "kernels/device/split_tf32.cuh"

namespace gemmd::device {

template <class Config>
struct WarpTile {
  using Tile = BlockTile<Config>;
  static constexpr int kMmaM = 16;
  static constexpr int kMmaN = 8;
  static constexpr int kMmaK = 8;
  static constexpr int kStepsM = Config::kBlockM / Config::kWarpsM / kMmaM;
  static constexpr int kStepsN = Config::kBlockN / Config::kWarpsN / kMmaN;
  static_assert(kStepsM * kMmaM * Config::kWarpsM == Config::kBlockM, "warps must tile block_m");
  static_assert(kStepsN * kMmaN * Config::kWarpsN == Config::kBlockN, "warps must tile block_n");
  static_assert(Config::kBlockK % kMmaK == 0, "MMA steps must tile block_k");

  struct Accumulators {
    float value[kStepsM][kStepsN][4];
  };
  // TF32 terms of a fragment. The finite copy stands in where the other operand's low term may be
  // 0.
  struct OperandA {
    float high[4];
    float low[4];
    float finite[4];
  };
  struct OperandB {
    float high[2];
    float low[2];
    float finite[2];
  };

  int first_row;     // of the warp, in the block tile
  int first_column;  // of the warp, in the block tile
  int group;         // lane / 4
  int lane_in_group;

  __host__ __device__ static WarpTile Of(int thread) {
    const int warp = thread / 32;
    const int lane = thread % 32;
    return {warp % Config::kWarpsM * kStepsM * kMmaM, warp / Config::kWarpsM * kStepsN * kMmaN,
            lane / 4, lane % 4};
  }

  __host__ __device__ OperandA LoadA(const float* tile, int step_m, int k) const {
    const float* corner =
        tile + (first_row + step_m * kMmaM + group) * Tile::kRowFloats + k + lane_in_group;
    OperandA a;
    GEMMD_UNROLL
    for (int i = 0; i < 4; ++i) {
      SetTerms(corner[i % 2 * 8 * Tile::kRowFloats + i / 2 * 4], a.high[i], a.low[i], a.finite[i]);
    }
    return a;
  }

  __host__ __device__ OperandB LoadB(const float* tile, int step_n, int k) const {
    const float* corner =
        tile + (first_column + step_n * kMmaN + group) * Tile::kRowFloats + k + lane_in_group;
    OperandB b;
    GEMMD_UNROLL
    for (int i = 0; i < 2; ++i) SetTerms(corner[i * 4], b.high[i], b.low[i], b.finite[i]);
    return b;
  }

  // Row and column in the block tile of accumulator `i` of fragment (step_m, step_n).
  __host__ __device__ int Row(int step_m, int i) const {
    return first_row + step_m * kMmaM + group + i / 2 * 8;
  }
  __host__ __device__ int Column(int step_n, int i) const {
    return first_column + step_n * kMmaN + lane_in_group * 2 + i % 2;
  }

 private:
  __host__ __device__ static void SetTerms(float value, float& high, float& low, float& finite) {
    const Tf32Pair pair = SplitTf32(value);
    high = pair.high;
    low = pair.low;
    finite = FiniteOrZero(pair.high);
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_WARP_TILE_CUH_
