// What    Granularity of scales: where the scale and zero point of a weight are, and
//         w = (code - zero_point) * scale * secondary_scale in float32.
// Shapes  Scales and zero points [E, scale_rows, scale_columns], secondary scales [E] or [E, N].
// Config  kWeight, kScale, kZeroPoint. Secondary scales and a group index are there or not when the kernel runs:
//         a kernel for each would be six times as many to compile.
// Sync    None. Apply touches registers only; the loads read one element each.
#ifndef GEMMD_KERNELS_DEVICE_WEIGHT_SCALING_CUH_
#define GEMMD_KERNELS_DEVICE_WEIGHT_SCALING_CUH_

#include "kernels/contract/gemm_args.h"
#include "kernels/contract/quant_spec.h"
#include "kernels/device/decode_number.cuh"

namespace gemmd::device {

template <class Config>
struct WeightScaling {
  static constexpr bool kHasScale = Config::kScale.kind != NumberKind::kNone;
  static constexpr bool kUsesGrid = kHasScale || Config::kZeroPoint != ZeroPointKind::kNone;

  float zero_point;
  float scale;
  float secondary_scale;

  __host__ __device__ float Apply(float code) const {
    float weight = code - zero_point;
    if constexpr (kHasScale) weight *= scale;
    return weight * secondary_scale;
  }

  // The scale column of input feature `k`.
  __host__ __device__ static int32_t GridColumn(const WeightArgs& args, int32_t expert, int32_t k) {
    if constexpr (!kUsesGrid) return 0;
    if (args.group_index != nullptr) {
      return args.group_index[static_cast<int64_t>(expert) * args.k + k];
    }
    return k / args.scale_block_k;
  }

  __host__ __device__ static WeightScaling Load(const WeightArgs& args, int32_t expert, int32_t n,
                                                int32_t grid_column) {
    WeightScaling scaling{kImpliedZeroPoint, 1.0f, 1.0f};
    if constexpr (kUsesGrid) {
      const int64_t row = static_cast<int64_t>(expert) * args.scale_rows + n / args.scale_block_n;
      scaling.LoadGrid(args, row * args.scale_columns + grid_column);
    }
    if (args.secondary_scales != nullptr) {
      const int32_t row = args.secondary_scale_rows == 1 ? 0 : n;
      const int64_t first = static_cast<int64_t>(expert) * args.secondary_scale_rows;
      scaling.secondary_scale = args.secondary_scales[first + row];
    }
    return scaling;
  }

 private:
  // Integers without zero points are centred: 2^(bits - 1).
  static constexpr float kImpliedZeroPoint =
      Config::kWeight.kind == NumberKind::kInteger ? 1u << (Config::kWeight.bits - 1) : 0u;

  __host__ __device__ void LoadGrid(const WeightArgs& args, int64_t index) {
    if constexpr (kHasScale) scale = LoadNumber<Config::kScale>(args.scales, index);
    if constexpr (Config::kZeroPoint == ZeroPointKind::kInteger) {
      zero_point = static_cast<const int16_t*>(args.zero_points)[index];
    } else if constexpr (Config::kZeroPoint == ZeroPointKind::kFloat) {
      zero_point = static_cast<const float*>(args.zero_points)[index];
    }
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_WEIGHT_SCALING_CUH_
