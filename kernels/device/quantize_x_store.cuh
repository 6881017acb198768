// What    One piece of h and the scale it has -> codes, and the scale itself once per row or group.
// Memory  Codes of a whole piece leave in one store, others byte by byte; nothing past K is written.
// Sync    None.
#ifndef GEMMD_KERNELS_DEVICE_QUANTIZE_X_STORE_CUH_
#define GEMMD_KERNELS_DEVICE_QUANTIZE_X_STORE_CUH_

#include "kernels/device/quantize_x_code.cuh"
#include "kernels/device/quantize_x_scale.cuh"
#include "kernels/device/quantize_x_tile.cuh"

namespace gemmd::device {

template <class Config>
struct QuantizeStore {
  using Tile = QuantizeTile<Config>;
  static constexpr int kWidth = Tile::kWidth;
  static_assert(Config::kCodeType == ElementType::kFloat8E4M3 ||
                    Config::kCodeType == ElementType::kFloat8E5M2 ||
                    Config::kCodeType == ElementType::kInt8,
                "codes have 8 bits");

  // Column of the slice where the group of `column` starts; 0 when the row has one scale.
  __host__ __device__ static int32_t GroupColumn(const QuantizeArgs& args, int32_t column) {
    if constexpr (Config::kMode != QuantizeMode::kDynamicGroup) return 0;
    const auto group = static_cast<int32_t>(Min<int64_t>(args.group, args.slice_columns));
    return column / group * group;
  }

  __host__ __device__ static float Scale(const QuantizeArgs& args, float largest) {
    if constexpr (Config::kMode == QuantizeMode::kStaticTensor) return *args.static_scale;
    return ScaleOf<Config::kCodeType>(largest);
  }

  // `column` and `group_column`: of the slice.
  __host__ __device__ static void Piece(const QuantizeArgs& args, const Tile& tile, int32_t column,
                                        int32_t group_column, float scale,
                                        const float (&piece)[kWidth]) {
    if (HasDynamicScales(Config::kMode) && column == group_column) {
      StoreScale(args, tile, column, scale);
    }
    const Quotients quotients(scale);
    float values[kWidth];
    GEMMD_UNROLL
    for (int i = 0; i < kWidth; ++i) values[i] = quotients.Of(piece[i]);
    uint32_t words[kWidth / 4];
    GEMMD_UNROLL
    for (int i = 0; i < kWidth / 4; ++i) {
      words[i] = CodeRounder<Config::kCodeType>::Four(values + 4 * i);
    }
    uint8_t* const codes =
        static_cast<uint8_t*>(args.codes) + tile.row * args.codes_row_stride + tile.first + column;
    StoreWords(codes, tile.columns - column, words);
  }

 private:
  __host__ __device__ static void StoreScale(const QuantizeArgs& args, const Tile& tile,
                                             int32_t column, float scale) {
    const int64_t group =
        Config::kMode == QuantizeMode::kDynamicGroup ? (tile.first + column) / args.group : 0;
    args.scales[tile.row * args.scales_row_stride + group] = scale;
  }

  __host__ __device__ static void StoreWords(uint8_t* codes, int32_t count,
                                             const uint32_t (&words)[kWidth / 4]) {
    if (count >= kWidth) {
      if constexpr (kWidth == 8) {
        *reinterpret_cast<uint2*>(codes) = {words[0], words[1]};
      } else {
        *reinterpret_cast<uint32_t*>(codes) = words[0];
      }
      return;
    }
    GEMMD_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      if (i < count) codes[i] = static_cast<uint8_t>(words[i / 4] >> (8 * (i % 4)));
    }
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_QUANTIZE_X_STORE_CUH_
