// What    The activation between the two GEMMs: float32 gate and up -> one value, rounded once.
//           silu_and_mul    g * sigmoid(g) * u, with a limit g and u clamped first
//           swiglu_clamped  g = min(g, limit), u = clamp(u, -limit, limit): g * sigmoid(alpha g) *
//           (u + 1) relu_squared    max(0, x)^2, no gate
//         A NaN passes every clamp.
// Shapes  in [slots, columns_in] -> out [slots, columns_out]; absent slots are skipped.
// Sync    None. MoeActivate: any grid and block; the grid strides over slots, the block over
// columns. Source  gpt-oss reference code for swiglu_clamped (https://github.com/openai/gpt-oss).
#ifndef GEMMD_KERNELS_DEVICE_MOE_ACTIVATE_CUH_
#define GEMMD_KERNELS_DEVICE_MOE_ACTIVATE_CUH_

#ifndef __CUDACC__
#include <cmath>
#endif

#include "kernels/device/element.cuh"
#include "kernels/device/moe_slots.cuh"

namespace gemmd::device {

struct GateActivation {
  MoeActivation function;
  bool has_limit;
  float alpha;
  float limit;

  __host__ __device__ float Gated(float gate, float up) const {
    if (has_limit) {
      gate = gate > limit ? limit : gate;
      up = up > limit ? limit : (up < -limit ? -limit : up);
    }
    if (function == MoeActivation::kSwigluClamped)
      return gate * Sigmoid(alpha * gate) * (up + 1.0f);
    return gate * Sigmoid(gate) * up;
  }

  __host__ __device__ static float ReluSquared(float x) {
    const float positive = x < 0 ? 0.0f : x;
    return positive * positive;
  }

  __host__ __device__ static float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
};

// The activation of one output element of one slot.
__host__ __device__ inline float ActivateElement(const MoeActivateArgs& args, int64_t slot,
                                                 int64_t column) {
  if (args.activation == MoeActivation::kReluSquared) {
    return GateActivation::ReluSquared(args.in[slot * args.columns_out + column]);
  }
  const GateActivation activation{args.activation, args.has_limit != 0, args.alpha, args.limit};
  const float* row = args.in + slot * args.columns_out * 2;
  return args.interleaved != 0 ? activation.Gated(row[column * 2], row[column * 2 + 1])
                               : activation.Gated(row[column], row[args.columns_out + column]);
}

#ifdef __CUDACC__

__global__ void MoeActivate(const __grid_constant__ MoeActivateArgs args) {
  const int64_t slots = SlotCount(args.routing);
  for (int64_t slot = blockIdx.x; slot < slots; slot += gridDim.x) {
    if (ExpertOfSlot(args.routing, slot) == kAbsent) continue;
    for (int64_t column = threadIdx.x; column < args.columns_out; column += blockDim.x) {
      StoreElement(args.out_type, args.out, slot * args.columns_out + column,
                   ActivateElement(args, slot, column));
    }
  }
}

#endif  // __CUDACC__

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_MOE_ACTIVATE_CUH_
