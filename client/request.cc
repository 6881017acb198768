#include "client/request.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace gemmd::client {
namespace {

absl::Status Fill(const Tensor& tensor, absl::string_view name, bool reads, Link& link,
                  absl::Time deadline, v1::TensorRef* to) {
  if (tensor.region == nullptr || tensor.region->empty()) {
    return Error(absl::StatusCode::kInvalidArgument, "REGION_NOT_FOUND",
                 absl::StrCat(name, " names no region"));
  }
  auto ref = tensor.region->record()->RefOn(link, deadline, reads);
  if (!ref.ok()) return Annotate(ref.status(), name);
  *to->mutable_region() = *std::move(ref);
  to->set_byte_offset(tensor.byte_offset);
  to->set_dtype(tensor.dtype);
  to->add_shape(tensor.rows);
  to->add_shape(tensor.columns);
  to->set_row_stride(tensor.row_stride);
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> LayerId(const Layer* layer, absl::string_view name, Link& link,
                                 absl::Time deadline) {
  if (layer == nullptr || layer->empty()) {
    return Error(absl::StatusCode::kInvalidArgument, "LAYER_NOT_FOUND",
                 absl::StrCat(name, " names no layer"));
  }
  return layer->record()->IdOn(link, deadline);
}

}  // namespace

int64_t ElementBytes(v1::DataType dtype) {
  switch (dtype) {
    case v1::DATA_TYPE_FLOAT32:
    case v1::DATA_TYPE_INT32:
      return 4;
    case v1::DATA_TYPE_FLOAT16:
    case v1::DATA_TYPE_BFLOAT16:
      return 2;
    case v1::DATA_TYPE_FLOAT8_E4M3:
    case v1::DATA_TYPE_FLOAT8_E5M2:
    case v1::DATA_TYPE_FLOAT8_E8M0:
    case v1::DATA_TYPE_INT8:
      return 1;
    case v1::DATA_TYPE_INT64:
      return 8;
    default:
      return 0;
  }
}

absl::StatusOr<v1::GemmRequest> ToProto(const Gemm& gemm, Link& link, absl::Time deadline) {
  v1::GemmRequest request;
  GEMMD_ASSIGN_OR_RETURN(const uint64_t layer_id, LayerId(gemm.layer, "layer", link, deadline));
  request.set_layer_id(layer_id);
  GEMMD_RETURN_IF_ERROR(Fill(gemm.x, "x", true, link, deadline, request.mutable_x()));
  if (gemm.x_scale) {
    GEMMD_RETURN_IF_ERROR(
        Fill(*gemm.x_scale, "x_scale", true, link, deadline, request.mutable_x_scale()));
  }
  GEMMD_RETURN_IF_ERROR(Fill(gemm.y, "y", false, link, deadline, request.mutable_y()));
  if (gemm.batch_invariant) request.mutable_options()->set_batch_invariant(true);
  if (gemm.numerics != 0) request.mutable_options()->set_numerics(gemm.numerics);
  if (gemm.fp16_accumulation) request.mutable_options()->set_fp16_accumulation(true);
  if (gemm.hadamard_block != 0) request.mutable_options()->set_hadamard_block(gemm.hadamard_block);
  return request;
}

absl::StatusOr<v1::MoeRequest> ToProto(const Moe& moe, Link& link, absl::Time deadline) {
  v1::MoeRequest request;
  GEMMD_ASSIGN_OR_RETURN(const uint64_t gate_up, LayerId(moe.gate_up, "gate_up", link, deadline));
  GEMMD_ASSIGN_OR_RETURN(const uint64_t down, LayerId(moe.down, "down", link, deadline));
  request.set_gate_up_layer_id(gate_up);
  request.set_down_layer_id(down);
  GEMMD_RETURN_IF_ERROR(Fill(moe.x, "x", true, link, deadline, request.mutable_x()));
  GEMMD_RETURN_IF_ERROR(Fill(moe.y, "y", false, link, deadline, request.mutable_y()));
  if (moe.router_logits) {
    v1::RouterLogits* logits = request.mutable_router_logits();
    GEMMD_RETURN_IF_ERROR(
        Fill(*moe.router_logits, "router_logits", true, link, deadline, logits->mutable_logits()));
    logits->set_top_k(moe.top_k);
    logits->set_renormalize(moe.renormalize);
  } else if (moe.topk_ids && moe.topk_weights) {
    v1::TopK* top_k = request.mutable_top_k();
    GEMMD_RETURN_IF_ERROR(
        Fill(*moe.topk_ids, "topk_ids", true, link, deadline, top_k->mutable_ids()));
    GEMMD_RETURN_IF_ERROR(
        Fill(*moe.topk_weights, "topk_weights", true, link, deadline, top_k->mutable_weights()));
  }
  request.set_activation(moe.activation);
  request.set_alpha(moe.alpha);
  request.set_limit(moe.limit);
  request.set_router_weight_on_input(moe.router_weight_on_input);
  request.set_first_expert(moe.first_expert);
  request.set_total_experts(moe.total_experts);
  return request;
}

}  // namespace gemmd::client
