// What    Stores the finished sums of one warp, 16 rows of w by kTokens rows of x: channel factor,
//         row factor, bias, one rounding.
// Shapes  sum: fragment D of ptx::WgmmaM64K16. kStageBytes of shared memory of the warp hold first the
//         row factors [kTokens] float32, then y of as many tokens at a time as fit: 16-bit
//         [kNarrowTokens][2][8 rows of w], so that each row of y gets 32 bytes at once, or float32
//         [kWideTokens][16 rows of w].
// Sync    The whole warp; nobody else touches its shared memory.
#ifndef GEMMD_KERNELS_DEVICE_TILE_STORE_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_TILE_STORE_SM90_CUH_

#include "kernels/contract/gemm_args.h"
#include "kernels/device/element.cuh"
#include "kernels/device/narrow_store.cuh"
#include "kernels/device/ptx/mbarrier.cuh"
#include "kernels/device/ptx/store_matrix.cuh"
#include "kernels/device/ptx/warpgroup.cuh"
#include "kernels/device/y_stage_sm90.cuh"

namespace gemmd::device {

template <class Config, typename Sum>
class TileStoreSm90 {
 public:
  static constexpr int kRows = 16;
  static constexpr int kRowBytes = kRows * 2;
  static constexpr int kWideTokens = Config::kTokens / 4;
  static constexpr int kNarrowTokens = 2 * kWideTokens;
  static constexpr int kTokensPerCopy = 32 / 2;  // of 32 bytes by two lanes
  static constexpr int kStageBytes = kWideTokens * kRows * 4;
  static constexpr int kSums = Config::kTokens / 2;
  static_assert(Config::kTokens % kWideTokens == 0, "whole passes");
  static_assert(Config::kTokens * 4 <= kStageBytes, "the row factors fit");

  // `first_token`, `first_row`: of the block's tile. `stage`: the warp's shared memory.
  __device__ TileStoreSm90(const GemmArgs& args, int64_t first_token, int32_t first_row, int warp,
                           int lane, char* stage)
      : args_(args),
        first_token_(first_token),
        first_row_(first_row + warp * kRows),
        warp_(warp),
        lane_(lane),
        tokens_(static_cast<int>(Min<int64_t>(args.m - first_token, Config::kTokens))),
        floats_(reinterpret_cast<float*>(stage)),
        stage_(ptx::SharedAddress(stage)) {
    GEMMD_UNROLL
    for (int half = 0; half < 2; ++half) LoadRow(half);
    LoadTokenFactors();
  }

  // Into `stage` if `behind`; all math warps take part then.
  __device__ void Store(const Sum (&sum)[kSums], bool behind, const YStageSm90<Config>& stage) const {
    if (first_row_ >= args_.weights.n) {
      if (behind) WaitForAll();
      return;
    }
    float y[kSums];  // one piece of code makes them, whatever y's type is
    GEMMD_UNROLL
    for (int j = 0; j < Config::kTokens / 8; ++j) {
      const float2 token = TokenFactors(j);
      GEMMD_UNROLL
      for (int c = 0; c < 4; ++c) y[4 * j + c] = Value(sum[4 * j + c], c, token);
    }
    __syncwarp();  // y takes the factors' place
    if (args_.y_type == ElementType::kFloat32) {
      StoreFloats(y);
      return;
    }
    uint32_t pairs[kSums / 2];
    NarrowPairs(args_.y_type, y, pairs);
    if (behind) {
      WaitForAll();  // for their factors' places
      PutBehind(pairs, stage);
    } else {
      StoreNarrow(pairs);
    }
  }

 private:
  __device__ void LoadRow(int half) {
    const WeightArgs& weights = args_.weights;
    const int32_t row = Min<int32_t>(first_row_ + lane_ / 4 + 8 * half, weights.n - 1);
    factor_[half] = weights.channel_factor == nullptr ? 1.0f : weights.channel_factor[row];
    bias_[half] =
        weights.bias == nullptr ? 0.0f : LoadWideElement(weights.bias_type, weights.bias, row);
  }

  // To shared memory: a load from global memory per use would wait each time.
  __device__ void LoadTokenFactors() const {
    float common = Sm90Tile<Config>::kSumFactor;  // times a channel's factor it could be beyond float32
    if (args_.weights.activation_scale != nullptr) common *= *args_.weights.activation_scale;
    GEMMD_UNROLL
    for (int i = 0; i < Config::kTokens; i += 32) {
      const int64_t token = first_token_ + Min(i + lane_, tokens_ - 1);
      floats_[i + lane_] = args_.row_scale == nullptr
                                ? common
                                : args_.row_scale[token * args_.row_scale_stride] * common;
    }
    __syncwarp();
  }
  // Of the thread's two tokens of block `j`.
  __device__ float2 TokenFactors(int j) const {
    return *reinterpret_cast<const float2*>(floats_ + 8 * j + lane_ % 4 * 2);
  }

  // Element c of the thread's four of a block.
  __device__ float Value(Sum sum, int c, const float2& token) const {
    const float value = static_cast<float>(sum) * factor_[c / 2];
    return value * (c % 2 == 0 ? token.x : token.y) + bias_[c / 2];
  }

  __device__ static void WaitForAll() { ptx::NamedBarrier<2, Sm90Tile<Config>::kMathThreads>(); }

  __device__ void PutBehind(const uint32_t (&pairs)[kSums / 2], const YStageSm90<Config>& stage) const {
    using Stage = YStageSm90<Config>;
    const uint32_t to = stage.Unit(warp_ / 4) +
                        Stage::Offset(lane_ / 16 * 8 + lane_ % 8, warp_ % 4 * 2 + lane_ / 8 % 2);
    GEMMD_UNROLL
    for (int j = 0; j < Config::kTokens / 8; j += 2) {
      ptx::StoreMatricesTransposed(to + 8 * j * Stage::kPitch,
                                   {pairs[2 * j], pairs[2 * j + 1], pairs[2 * j + 2], pairs[2 * j + 3]});
    }
  }

  __device__ void StoreNarrow(const uint32_t (&pairs)[kSums / 2]) const {
    const uint32_t to = stage_ + Place(lane_ / 16 * 8 + lane_ % 8, lane_ / 8 % 2);
    GEMMD_UNROLL
    for (int first = 0; first < Config::kTokens; first += kNarrowTokens) {
      if (first >= tokens_) return;
      GEMMD_UNROLL
      for (int j = first / 8; j < (first + kNarrowTokens) / 8; j += 2) {
        ptx::StoreMatricesTransposed(
            to + (8 * j - first) * kRowBytes,
            {pairs[2 * j], pairs[2 * j + 1], pairs[2 * j + 2], pairs[2 * j + 3]});
      }
      __syncwarp();
      CopyOut(first);
      __syncwarp();
    }
  }

  // Of 8 rows' 16 bytes, from the start of the warp's shared memory; neighbours four tokens apart swap, so that 8
  // tokens meet 32 banks. Eight tokens on it is 8 * kRowBytes on.
  __device__ static uint32_t Place(int token, int eight) {
    return token * kRowBytes + ((eight ^ (token / 4 % 2)) << 4);
  }

  __device__ void CopyOut(int first) const {
    const int64_t stride = args_.y_row_stride;
    const uint64_t bits = reinterpret_cast<uint64_t>(args_.y) | static_cast<uint64_t>(stride) * 2;
    uint16_t* const y =
        static_cast<uint16_t*>(args_.y) + (first_token_ + first) * stride + first_row_;
    const int tokens = Min(tokens_ - first, kNarrowTokens);
    if (first_row_ + kRows > args_.weights.n || bits % 16 != 0) {
      CopyOutElements(tokens, y);
      return;
    }
    const int eight = lane_ % 2;
    const uint32_t from = stage_ + Place(lane_ / 2, eight);
    GEMMD_UNROLL_BY_4
    for (int i = 0; i < kNarrowTokens; i += kTokensPerCopy) {
      const int token = i + lane_ / 2;
      if (token >= tokens) return;
      *reinterpret_cast<uint4*>(y + token * stride + 8 * eight) =
          ptx::LoadShared16(from + i * kRowBytes);
    }
  }

  __device__ void CopyOutElements(int tokens, uint16_t* y) const {
    const auto* const from = reinterpret_cast<const uint16_t*>(floats_);
    GEMMD_NO_UNROLL
    for (int i = lane_; i < tokens * kRows; i += 32) {
      const int token = i / kRows;
      const int row = i % kRows;
      if (first_row_ + row >= args_.weights.n) continue;
      y[token * args_.y_row_stride + row] = from[Place(token, row / 8) / 2 + row % 8];
    }
  }

  __device__ void StoreFloats(const float (&y)[kSums]) const {
    GEMMD_UNROLL
    for (int first = 0; first < Config::kTokens; first += kWideTokens) {
      if (first >= tokens_) return;
      GEMMD_UNROLL
      for (int j = first / 8; j < (first + kWideTokens) / 8; ++j) {
        GEMMD_UNROLL
        for (int c = 0; c < 4; ++c) {
          const int at = 8 * j - first + lane_ % 4 * 2 + c % 2;
          floats_[at * kRows + lane_ / 4 + c / 2 * 8] = y[4 * j + c];
        }
      }
      __syncwarp();
      CopyOutFloats(first);
      __syncwarp();
    }
  }

  __device__ void CopyOutFloats(int first) const {
    GEMMD_NO_UNROLL
    for (int i = lane_; i < kWideTokens * kRows; i += 32) {
      const int token = first + i / kRows;
      const int32_t row = first_row_ + i % kRows;
      if (token >= tokens_ || row >= args_.weights.n) continue;
      static_cast<float*>(args_.y)[(first_token_ + token) * args_.y_row_stride + row] = floats_[i];
    }
  }

  const GemmArgs& args_;
  int64_t first_token_;
  int32_t first_row_;
  int warp_;
  int lane_;
  int tokens_;
  float* floats_;
  uint32_t stage_;   // the same place
  float factor_[2];  // of rows lane / 4 and lane / 4 + 8
  float bias_[2];
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_TILE_STORE_SM90_CUH_
