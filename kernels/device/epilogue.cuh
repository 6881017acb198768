// What    One finished sum -> y: row scale, static activation scale, bias, one rounding.
// Shapes  Sum (row, n) of a row tile; rows and columns outside are the caller's to skip.
// Sync    None.
#ifndef GEMMD_KERNELS_DEVICE_EPILOGUE_CUH_
#define GEMMD_KERNELS_DEVICE_EPILOGUE_CUH_

#include "kernels/contract/gemm_args.h"
#include "kernels/device/element.cuh"
#include "kernels/device/warp_tile.cuh"

namespace gemmd::device {

template <class Config>
struct Epilogue {
  using Warp = WarpTile<Config>;

  // Stores the accumulators that one thread holds.
  template <class Rows>
  __host__ __device__ static void Store(const GemmArgs& args, const Rows& rows, const Warp& warp,
                                        int32_t n0, const typename Warp::Accumulators& acc) {
    const int32_t columns = args.weights.n - n0;
    float bias[Warp::kStepsN][2];
    LoadBias(args.weights, rows.expert, n0, warp, bias);
    GEMMD_UNROLL
    for (int i = 0; i < Warp::kStepsM; ++i) {
      GEMMD_UNROLL
      for (int c = 0; c < 4; ++c) {
        const int row = warp.Row(i, c);
        if (row >= rows.count) continue;
        const float factor = RowFactor(args, rows, row);
        const int64_t y_row = rows.OutputRow(args, row) * args.y_row_stride;
        GEMMD_UNROLL
        for (int j = 0; j < Warp::kStepsN; ++j) {
          const int column = warp.Column(j, c);
          if (column >= columns) continue;
          StoreElement(args.y_type, args.y, y_row + n0 + column,
                       acc.value[i][j][c] * factor + bias[j][c % 2]);
        }
      }
    }
  }

 private:
  template <class Rows>
  __host__ __device__ static float RowFactor(const GemmArgs& args, const Rows& rows, int row) {
    float factor = 1;
    if (args.row_scale != nullptr) {
      factor = args.row_scale[rows.InputRow(args, row) * args.row_scale_stride];
    }
    if (args.weights.activation_scale != nullptr)
      factor *= args.weights.activation_scale[rows.expert];
    return factor;
  }

  __host__ __device__ static void LoadBias(const WeightArgs& args, int32_t expert, int32_t n0,
                                           const Warp& warp, float (&bias)[Warp::kStepsN][2]) {
    GEMMD_UNROLL
    for (int j = 0; j < Warp::kStepsN; ++j) {
      GEMMD_UNROLL
      for (int c = 0; c < 2; ++c) {
        const int column = warp.Column(j, c);
        const bool used = args.bias != nullptr && column < args.n - n0;
        const int64_t index = static_cast<int64_t>(expert) * args.n + n0 + column;
        bias[j][c] = used ? LoadWideElement(args.bias_type, args.bias, index) : 0.0f;
      }
    }
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_EPILOGUE_CUH_
