// What    y[token] = sum over its present slots, in slot order, of router weight * expert output,
// in
//         float32, rounded once. A token without present slots gives a row of zeros.
// Shapes  in [slots, columns] float32 -> y [tokens, columns].
// Sync    None. MoeCombine: any grid and block; the grid strides over tokens, the block over
// columns.
#ifndef GEMMD_KERNELS_DEVICE_MOE_COMBINE_CUH_
#define GEMMD_KERNELS_DEVICE_MOE_COMBINE_CUH_

#include "kernels/device/element.cuh"
#include "kernels/device/moe_slots.cuh"

namespace gemmd::device {

__host__ __device__ inline float CombineElement(const MoeCombineArgs& args, int64_t token,
                                                int64_t column) {
  const RoutingArgs& routing = args.routing;
  float sum = 0;
  for (int32_t choice = 0; choice < routing.top_k; ++choice) {
    const int64_t slot = token * routing.top_k + choice;
    if (ExpertOfSlot(routing, slot) == kAbsent) continue;
    const float value = args.in[slot * args.columns + column];
    const float weight = args.weights_applied != 0
                             ? 1.0f
                             : routing.topk_weights[token * routing.weights_row_stride + choice];
    sum += weight * value;
  }
  return sum;
}

#ifdef __CUDACC__

__global__ void MoeCombine(const __grid_constant__ MoeCombineArgs args) {
  for (int64_t token = blockIdx.x; token < args.routing.tokens; token += gridDim.x) {
    for (int64_t column = threadIdx.x; column < args.columns; column += blockDim.x) {
      StoreElement(args.y_type, args.y, token * args.y_row_stride + column,
                   CombineElement(args, token, column));
    }
  }
}

#endif  // __CUDACC__

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_MOE_COMBINE_CUH_
