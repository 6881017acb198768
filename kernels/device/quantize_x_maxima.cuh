// What    The largest magnitude of a row or of each group, from those of the threads' pieces.
// Shapes  With groups a table [units] in shared memory: a unit is kUnit columns, which divide every group
//         and belong to neighbouring lanes. With a scale per row one value per warp.
// Sync    Finish is block-wide; Add is warp-wide with groups.
#ifndef GEMMD_KERNELS_DEVICE_QUANTIZE_X_MAXIMA_CUH_
#define GEMMD_KERNELS_DEVICE_QUANTIZE_X_MAXIMA_CUH_

#include "kernels/device/ptx/max_nan.cuh"
#include "kernels/device/quantize_x_tile.cuh"

namespace gemmd::device {

template <class Config>
struct GroupUnits {
  static constexpr int kWidth = QuantizeTile<Config>::kWidth;
  static constexpr int kLanes = Config::kUnit / kWidth;  // per unit
  static_assert(Config::kMode != QuantizeMode::kDynamicGroup ||
                    (Config::kUnit % kWidth == 0 && kLanes <= 32 && (kLanes & (kLanes - 1)) == 0),
                "a unit belongs to a power of two of lanes");

  // Of the group that starts at `column` of a slice with `columns`.
  __host__ __device__ static float Largest(const float* table, int32_t column, int64_t group,
                                           int32_t columns) {
    const int32_t first = column / Config::kUnit;
    const int32_t end = static_cast<int32_t>(
        (Min<int64_t>(column + group, columns) + Config::kUnit - 1) / Config::kUnit);
    float largest = table[first];
    for (int32_t unit = first + 1; unit < end; ++unit) {
      largest = ptx::MaxNan(largest, table[unit]);
    }
    return largest;
  }
};

#ifdef __CUDACC__

template <int kLanes>
__device__ float LargestOfLanes(float value) {
#pragma unroll
  for (int apart = kLanes / 2; apart > 0; apart /= 2) {
    value = ptx::MaxNan(value, __shfl_xor_sync(0xffffffffu, value, apart));
  }
  return value;
}

template <class Config>
struct QuantizeMaxima {
  using Tile = QuantizeTile<Config>;
  using Units = GroupUnits<Config>;

  float* table;  // shared memory
  float mine = 0;

  __device__ void Add(const Tile& tile, int chunk, float largest) {
    if constexpr (Config::kMode == QuantizeMode::kDynamicToken) mine = ptx::MaxNan(mine, largest);
    if constexpr (Config::kMode == QuantizeMode::kDynamicGroup) {
      largest = LargestOfLanes<Units::kLanes>(largest);
      const int32_t column = Tile::Column(chunk, threadIdx.x);
      if (threadIdx.x % Units::kLanes == 0 && column < tile.columns) {
        table[column / Config::kUnit] = largest;
      }
    }
  }

  __device__ void Finish() {
    if constexpr (!HasDynamicScales(Config::kMode)) return;
    if constexpr (Config::kMode == QuantizeMode::kDynamicToken) {
      mine = LargestOfLanes<32>(mine);
      if (threadIdx.x % 32 == 0) table[threadIdx.x / 32] = mine;
    }
    __syncthreads();
    if constexpr (Config::kMode == QuantizeMode::kDynamicToken) {
#pragma unroll
      for (int warp = 0; warp < Config::kThreads / 32; ++warp) {
        mine = ptx::MaxNan(mine, table[warp]);
      }
    }
  }

  // Of the row, or of the group that starts at `group_column` of the slice. After Finish.
  __device__ float At(const QuantizeArgs& args, const Tile& tile, int32_t group_column) const {
    if constexpr (Config::kMode == QuantizeMode::kDynamicGroup) {
      return Units::Largest(table, group_column, args.group, tile.columns);
    }
    return mine;
  }
};

#endif  // __CUDACC__

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_QUANTIZE_X_MAXIMA_CUH_
