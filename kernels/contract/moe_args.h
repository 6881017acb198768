// What    Parameters of the kernels around the two GEMMs of a mixture-of-experts request.
// Words   A slot is one (token, choice) pair: slot = token * top_k + choice. It is absent when its
// expert
//         id is not one of this layer's: it contributes nothing.
#ifndef GEMMD_KERNELS_CONTRACT_MOE_ARGS_H_
#define GEMMD_KERNELS_CONTRACT_MOE_ARGS_H_

#include <cstdint>

#include "kernels/contract/element_type.h"

namespace gemmd {

// Chosen experts of every token, and which of them this layer holds.
struct RoutingArgs {
  const int32_t* topk_ids;    // [tokens, top_k]
  const float* topk_weights;  // [tokens, top_k]
  int64_t ids_row_stride;
  int64_t weights_row_stride;
  int64_t tokens;
  int64_t first_expert;
  int64_t total_experts;
  int32_t top_k;
  int32_t experts;
};

// Router logits -> topk_ids and topk_weights.
struct RouteTopKArgs {
  const void* logits;  // [tokens, total_experts]
  int64_t logits_row_stride;
  int32_t* topk_ids;    // [tokens, top_k], contiguous
  float* topk_weights;  // [tokens, top_k], contiguous
  int64_t tokens;
  int32_t total_experts;
  int32_t top_k;
  ElementType logits_type;
  int32_t renormalize;
};

// Slots -> slots sorted by expert. `counts` is zero before the first kernel and holds each expert's
// next free position afterwards.
struct MoeSortArgs {
  RoutingArgs routing;
  unsigned long long* counts;  // [E]
  int64_t* row_offsets;        // [E + 1]
  int64_t* tile_offsets;       // [E + 1], in tiles of block_m rows
  uint32_t* sorted_slots;      // [slots]
  int32_t block_m;
};

enum class MoeActivation : uint32_t { kSiluAndMul, kSwigluClamped, kReluSquared };

// First GEMM's output [slots, columns_in] float32 -> second GEMM's input [slots, columns_out].
struct MoeActivateArgs {
  RoutingArgs routing;
  const float* in;
  void* out;
  int64_t columns_out;
  ElementType out_type;
  MoeActivation activation;
  int32_t interleaved;  // gate and up alternate; otherwise all gates, then all ups
  int32_t has_limit;
  float alpha;
  float limit;
};

// Second GEMM's output [slots, columns] float32 -> y [tokens, columns].
struct MoeCombineArgs {
  RoutingArgs routing;
  const float* in;
  void* y;
  int64_t y_row_stride;
  int64_t columns;
  ElementType y_type;
  int32_t weights_applied;  // the router weights are already in `in`
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_CONTRACT_MOE_ARGS_H_
