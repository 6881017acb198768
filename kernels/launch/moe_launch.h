// What    One mixture-of-experts request (or a chunk of its tokens) -> launches on one stream:
//         route, sort, gate/up GEMM, activation, down GEMM, combine; in front of a GEMM whose layer has an
//         input scale the kernel that multiplies.
// Units   Workspace in bytes; intermediate values are per slot (token, choice).
// Errors  As cuda::LaunchKernel.
// Threads Any; the context must be current. No allocation, lock or driver query.
#ifndef GEMMD_KERNELS_LAUNCH_MOE_LAUNCH_H_
#define GEMMD_KERNELS_LAUNCH_MOE_LAUNCH_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/contract/gemm_args.h"
#include "kernels/contract/moe_args.h"
#include "kernels/launch/gemm_plan.h"
#include "kernels/launch/quantize_launch.h"

namespace gemmd {

struct MoeKernels {
  CUkernel route = nullptr;
  CUkernel count = nullptr;
  CUkernel prefix = nullptr;
  CUkernel scatter = nullptr;
  CUkernel activate = nullptr;
  CUkernel combine = nullptr;
};

struct MoeShape {
  int64_t tokens = 0;
  int64_t top_k = 1;
  int64_t experts = 1;
  int64_t gate_up_columns = 0;  // N of the first layer
  int64_t hidden_columns = 0;   // K of the second layer
  int64_t out_columns = 0;      // N of the second layer
  ElementType hidden_type = ElementType::kFloat16;
  bool routes = false;  // router logits instead of given ids
  // Columns of products with an input scale, one row for each token or slot; 0: none.
  int64_t scaled_token_columns = 0;
  int64_t scaled_slot_columns = 0;
};

// Offsets of the parts from the workspace's start, each a multiple of 256.
struct MoeWorkspace {
  uint64_t topk_ids = 0;
  uint64_t topk_weights = 0;
  uint64_t counts = 0;
  uint64_t row_offsets = 0;
  uint64_t tile_offsets = 0;
  uint64_t sorted_slots = 0;
  uint64_t gate_up = 0;
  uint64_t hidden = 0;
  uint64_t out = 0;
  uint64_t scaled_tokens = 0;
  uint64_t scaled_slots = 0;
  uint64_t bytes = 0;
};
MoeWorkspace LayoutMoeWorkspace(const MoeShape& shape);

// Tokens whose workspace stays near `budget_bytes`, at least 1 and few enough for 32-bit slots.
int64_t MoeTokensAtATime(const MoeShape& shape, uint64_t budget_bytes);

// Input scale of one layer.
struct MoeInputScale {
  const QuantizeKernel* kernel = nullptr;  // null: x is taken as it is
  const float* factors = nullptr;          // [E, K]; [K] when shared
  bool is_shared = false;                  // by all experts
};

struct MoeLaunch {
  MoeShape shape;
  MoeKernels kernels;
  const GemmKernel* gate_up_kernel = nullptr;
  const GemmKernel* down_kernel = nullptr;
  WeightArgs gate_up;
  WeightArgs down;
  MoeInputScale gate_up_scale;
  MoeInputScale down_scale;

  const void* x = nullptr;
  void* y = nullptr;
  int64_t x_row_stride = 0;
  int64_t y_row_stride = 0;
  ElementType x_type = ElementType::kFloat16;
  ElementType y_type = ElementType::kFloat16;

  // Given ids and weights, or the router's logits (shape.routes).
  RoutingArgs routing;
  RouteTopKArgs router;

  // function, interleaved, alpha and limit; the rest is filled in here.
  MoeActivateArgs activation;
  bool router_weight_on_input = false;
  uintptr_t workspace = 0;  // LayoutMoeWorkspace(shape).bytes, aligned to 256
};

absl::Status LaunchMoe(const cuda::DriverTable& driver, const MoeLaunch& launch, CUstream stream);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_LAUNCH_MOE_LAUNCH_H_
