// What    GEMM and MoE requests over regions and layers of one session.
// Shapes  As in proto/gemmd/v1/gemm.proto: x [M, K], y [M, N]; MoE y [M, K_out], top-k [M, top_k],
//         logits [M, total_experts].
// Life    Regions and layers are named by pointer and must outlive the answer.
#ifndef GEMMD_CLIENT_REQUEST_H_
#define GEMMD_CLIENT_REQUEST_H_

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/layer.h"
#include "client/region.h"
#include "gemmd/v1/gemm.pb.h"

namespace gemmd::client {

// A row-major matrix inside a region.
struct Tensor {
  const Region* region = nullptr;
  uint64_t byte_offset = 0;
  v1::DataType dtype = v1::DATA_TYPE_BFLOAT16;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t row_stride = 0;  // elements; 0 = columns
};

struct Gemm {
  const Layer* layer = nullptr;
  Tensor x;
  std::optional<Tensor> x_scale;
  Tensor y;
  bool batch_invariant = false;
  // With batch_invariant: which kernel's numbers (GemmOptions.numerics); 0 = the generic kernel's.
  uint64_t numerics = 0;
  uint32_t hadamard_block = 0;  // columns of x that are transformed together; 0 = no transform
  bool fp16_accumulation = false;  // permits sums of float16 (GemmOptions)
};

struct Moe {
  const Layer* gate_up = nullptr;
  const Layer* down = nullptr;
  Tensor x;
  Tensor y;
  // Either both of these or `router_logits` with top_k.
  std::optional<Tensor> topk_ids;      // INT32
  std::optional<Tensor> topk_weights;  // FLOAT32
  std::optional<Tensor> router_logits;
  uint32_t top_k = 0;
  bool renormalize = false;
  v1::ActivationFunction activation = v1::ACTIVATION_FUNCTION_SILU_AND_MUL;
  float alpha = 0;
  float limit = 0;
  bool router_weight_on_input = false;
  int64_t first_expert = 0;
  int64_t total_experts = 0;
};

// Bytes of one element; 0 for an unknown type.
int64_t ElementBytes(v1::DataType dtype);

// For this library: the message for `link`, with ids valid there.
absl::StatusOr<v1::GemmRequest> ToProto(const Gemm& gemm, Link& link, absl::Time deadline);
absl::StatusOr<v1::MoeRequest> ToProto(const Moe& moe, Link& link, absl::Time deadline);

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_REQUEST_H_
