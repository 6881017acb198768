// What    Stores the finished sums of one warp of TokenProductSm90, 16 tokens of each block by kRows rows of
//         w: channel factor, row factor, bias, one rounding.
// Shapes  sum: fragment D of ptx::WgmmaM64K32 with tokens for rows. kStageBytes of shared memory of the warp
//         hold 16-bit y [16 tokens][kRowsPerPass rows of w], 16 bytes of a token moved so that the 8
//         matrices' rows that are written at once meet 32 banks; or float32 y [16 tokens][kFloatRows
//         rows of w].
// Sync    The whole warp; nobody else touches its shared memory.
#ifndef GEMMD_KERNELS_DEVICE_TOKEN_STORE_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_TOKEN_STORE_SM90_CUH_

#include "kernels/contract/gemm_args.h"
#include "kernels/device/element.cuh"
#include "kernels/device/narrow_store.cuh"
#include "kernels/device/ptx/mbarrier.cuh"
#include "kernels/device/ptx/store_matrix.cuh"
#include "kernels/device/token_product_sm90.cuh"

namespace gemmd::device {

template <class Config>
class TokenStoreSm90 {
 public:
  using Mine = TokenPlaceSm90<Config>;
  static constexpr int kSums = Mine::kRows / 2;
  static constexpr int kTokens = 16;
  static constexpr int kRowsPerPass = Config::kTokens / 2;
  static constexpr int kTokenBytes = kRowsPerPass * 2;
  static constexpr int kStageBytes = kTokens * kTokenBytes;
  static constexpr int kEights = kRowsPerPass / 8;  // 16 bytes each
  static constexpr int kFloatRows = kRowsPerPass / 2;  // as many bytes
  static constexpr int kRowsOfLane = Mine::kRows / 32;
  static_assert(Mine::kRows % kRowsPerPass == 0, "whole passes");

  // `first_token`, `first_row`: of the block's tile. `stage`: the warp's shared memory.
  __device__ TokenStoreSm90(const GemmArgs& args, int64_t first_token, int32_t first_row, int warp,
                            int lane, char* stage)
      : args_(args),
        first_token_of_block_(first_token + Mine::FirstToken(warp / 4) + warp % 4 * kTokens),
        first_row_(first_row + Mine::FirstRow(warp / 4)),
        lane_(lane),
        floats_(reinterpret_cast<float*>(stage)),
        stage_(ptx::SharedAddress(stage)) {
    LoadRowTerms();
  }

  __device__ void Store(const float (&sum)[Mine::kBlocks][kSums]) {
    if (first_token_of_block_ >= args_.m) return;
    LoadTokenFactors();
    float y[Mine::kBlocks][kSums];  // one piece of code makes them, whatever y's type is
    GEMMD_UNROLL
    for (int j = 0; j < Mine::kRows / 8; ++j) {
      const RowTerms rows = TermsOf(j);
      GEMMD_UNROLL
      for (int i = 0; i < Mine::kBlocks * 4; ++i) {
        const int block = i / 4, c = i % 4;
        y[block][4 * j + c] = Value(sum[block][4 * j + c], block, c, rows);
      }
    }
    GEMMD_UNROLL
    for (int block = 0; block < Mine::kBlocks; ++block) {
      first_token_ = first_token_of_block_ + block * Mine::kBlockTokens;
      tokens_ = static_cast<int>(Min<int64_t>(args_.m - first_token_, kTokens));
      if (tokens_ <= 0) return;
      if (args_.y_type == ElementType::kFloat32) {
        StoreFloats(y[block]);
      } else {
        StoreNarrow(y[block]);
      }
    }
  }

 private:
  // Of tokens that x lacks: the last one's.
  __device__ void LoadTokenFactors() {
    GEMMD_UNROLL
    for (int i = 0; i < Mine::kBlocks * 2; ++i) {
      const int block = i / 2, half = i % 2;
      const int64_t token = Min<int64_t>(
          first_token_of_block_ + block * Mine::kBlockTokens + lane_ / 4 + 8 * half, args_.m - 1);
      float factor =
          args_.row_scale == nullptr ? 1.0f : args_.row_scale[token * args_.row_scale_stride];
      if (args_.weights.activation_scale != nullptr) factor *= *args_.weights.activation_scale;
      token_factor_[block][half] = factor;
    }
  }

  // Each lane those of every 32nd row, all loads at once.
  __device__ void LoadRowTerms() {
    const WeightArgs& weights = args_.weights;
    GEMMD_UNROLL
    for (int i = 0; i < kRowsOfLane; ++i) {
      const int32_t row = Min<int32_t>(first_row_ + 32 * i + lane_, weights.n - 1);
      factors_[i] = weights.channel_factor == nullptr ? 1.0f : weights.channel_factor[row];
      biases_[i] =
          weights.bias == nullptr ? 0.0f : LoadWideElement(weights.bias_type, weights.bias, row);
    }
  }

  // What is multiplied with and added to the thread's two rows of w of eight `j`.
  struct RowTerms {
    float factor[2];
    float bias[2];
  };
  __device__ RowTerms TermsOf(int j) const {
    RowTerms terms;
    GEMMD_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int lane = j % 4 * 8 + lane_ % 4 * 2 + i;
      terms.factor[i] = __shfl_sync(0xffffffffu, factors_[j / 4], lane);
      terms.bias[i] = __shfl_sync(0xffffffffu, biases_[j / 4], lane);
    }
    return terms;
  }

  // Element c of the thread's four of eight rows of w.
  __device__ float Value(float sum, int block, int c, const RowTerms& rows) const {
    return sum * rows.factor[c % 2] * token_factor_[block][c / 2] + rows.bias[c % 2];
  }

  __device__ void StoreNarrow(const float (&y)[kSums]) const {
    uint32_t pairs[kSums / 2];
    NarrowPairs(args_.y_type, y, pairs);
    GEMMD_UNROLL
    for (int first = 0; first < Mine::kRows; first += kRowsPerPass) {
      if (first_row_ + first >= args_.weights.n) return;
      GEMMD_UNROLL
      for (int j = first / 8; j < (first + kRowsPerPass) / 8; j += 2) {
        ptx::StoreMatrices(stage_ + Place(lane_ % 16, j - first / 8 + lane_ / 16),
                           {pairs[2 * j], pairs[2 * j + 1], pairs[2 * j + 2], pairs[2 * j + 3]});
      }
      __syncwarp();
      CopyOut(first);
      __syncwarp();
    }
  }

  // Of 8 rows' 16 bytes of a token.
  __device__ static uint32_t Place(int token, int eight) {
    const int moved = eight ^ (token * kEights / 8 % kEights);
    return token * kTokenBytes + (moved << 4);
  }

  __device__ void CopyOut(int first) const {
    const int eight = lane_ % kEights;
    const int32_t row = first_row_ + first + 8 * eight;
    const int64_t stride = args_.y_row_stride;
    const uint64_t bits = reinterpret_cast<uint64_t>(args_.y) | static_cast<uint64_t>(stride) * 2;
    uint16_t* const y = static_cast<uint16_t*>(args_.y) + first_token_ * stride + row;
    if (row + 8 > args_.weights.n || bits % 16 != 0) {
      GEMMD_NO_UNROLL
      for (int token = lane_ / kEights; token < tokens_; token += 32 / kEights) {
        StoreEight(y + token * stride, ptx::LoadShared16(stage_ + Place(token, eight)),
                   args_.weights.n - row);
      }
      return;
    }
    GEMMD_UNROLL
    for (int token = lane_ / kEights; token < kTokens; token += 32 / kEights) {
      if (token >= tokens_) return;
      *reinterpret_cast<uint4*>(y + token * stride) =
          ptx::LoadShared16(stage_ + Place(token, eight));
    }
  }

  __device__ void StoreFloats(const float (&y)[kSums]) const {
    GEMMD_UNROLL
    for (int first = 0; first < Mine::kRows; first += kFloatRows) {
      GEMMD_UNROLL
      for (int j = first / 8; j < (first + kFloatRows) / 8; ++j) {
        GEMMD_UNROLL
        for (int half = 0; half < 2; ++half) {
          const int at = (lane_ / 4 + 8 * half) * kFloatRows + 8 * j - first + lane_ % 4 * 2;
          *reinterpret_cast<float2*>(floats_ + at) = {y[4 * j + 2 * half], y[4 * j + 2 * half + 1]};
        }
      }
      __syncwarp();
      CopyOutFloats(first);
      __syncwarp();
    }
  }

  __device__ void CopyOutFloats(int first) const {
    GEMMD_NO_UNROLL
    for (int i = lane_; i < kTokens * kFloatRows; i += 32) {
      const int token = i / kFloatRows;
      const int32_t row = first_row_ + first + i % kFloatRows;
      if (token >= tokens_ || row >= args_.weights.n) continue;
      static_cast<float*>(args_.y)[(first_token_ + token) * args_.y_row_stride + row] = floats_[i];
    }
  }

  const GemmArgs& args_;
  int64_t first_token_of_block_;  // 0
  int64_t first_token_ = 0;       // of the warp
  int32_t first_row_;
  int lane_;
  int tokens_ = 0;
  float* floats_;
  uint32_t stage_;  // the same place
  float token_factor_[Mine::kBlocks][2];  // of tokens lane / 4 and lane / 4 + 8
  float factors_[kRowsOfLane];
  float biases_[kRowsOfLane];
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_TOKEN_STORE_SM90_CUH_
