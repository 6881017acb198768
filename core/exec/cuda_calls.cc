#include "core/exec/cuda_calls.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/exec/cpu_numbers.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

template <typename T>
T* Pointer(uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

uintptr_t RowAddress(const MatrixView& view, int64_t row) {
  return view.address + static_cast<uintptr_t>(row * view.row_stride * (view.type.bits / 8));
}

// Per-token scales go on the finished sum, group scales on the activations.
void SetActivationScales(const CudaLayer& layer, const GemmCall& call, GemmArgs& args) {
  if (!call.x_scale.has_value()) {
    if (call.x.type.bits == 8) args.weights.activation_scale = layer.tensors_of_x().static_scale;
    return;
  }
  const MatrixView& scale = *call.x_scale;
  if (scale.columns == 1) {
    args.row_scale = Pointer<const float>(scale.address);
    args.row_scale_stride = scale.row_stride;
    return;
  }
  args.group_scale = Pointer<const float>(scale.address);
  args.group_scale_stride = scale.row_stride;
  args.group_scale_columns =
      static_cast<int32_t>(std::min(layer.spec().activation_group, layer.shape().k));
  args.split_activations = 1;
}

int64_t TopKOf(const MoeCall& call) {
  return call.topk_ids.has_value() ? call.topk_ids->columns : call.router_logits->top_k;
}

MoeActivation ActivationOf(ActivationFunction function) {
  switch (function) {
    case ActivationFunction::kSiluAndMul:
      return MoeActivation::kSiluAndMul;
    case ActivationFunction::kSwigluClamped:
      return MoeActivation::kSwigluClamped;
    case ActivationFunction::kReluSquared:
      return MoeActivation::kReluSquared;
  }
  return MoeActivation::kSiluAndMul;
}

void SetRouting(const MoeCall& call, int64_t first_token, MoeLaunch& launch) {
  RoutingArgs& routing = launch.routing;
  routing.tokens = launch.shape.tokens;
  routing.first_expert = call.first_expert;
  routing.total_experts = call.total_experts;
  routing.top_k = static_cast<int32_t>(launch.shape.top_k);
  routing.experts = static_cast<int32_t>(launch.shape.experts);
  if (!launch.shape.routes) {
    routing.topk_ids = Pointer<const int32_t>(RowAddress(*call.topk_ids, first_token));
    routing.topk_weights = Pointer<const float>(RowAddress(*call.topk_weights, first_token));
    routing.ids_row_stride = call.topk_ids->row_stride;
    routing.weights_row_stride = call.topk_weights->row_stride;
  }
}

absl::Status SetRouter(const MoeCall& call, int64_t first_token, MoeLaunch& launch) {
  if (!launch.shape.routes) return absl::OkStatus();
  const MatrixView& logits = call.router_logits->logits;
  RouteTopKArgs& router = launch.router;
  router.logits = Pointer<const void>(RowAddress(logits, first_token));
  router.logits_row_stride = logits.row_stride;
  router.tokens = launch.shape.tokens;
  router.total_experts = static_cast<int32_t>(logits.columns);
  router.top_k = static_cast<int32_t>(launch.shape.top_k);
  router.renormalize = call.router_logits->renormalize;
  GEMMD_ASSIGN_OR_RETURN(router.logits_type, ElementTypeOf(logits.type, logits.is_signed_int));
  return absl::OkStatus();
}

MoeInputScale InputScaleOf(const CudaLayer& layer, ElementType x_type) {
  return {layer.ScalerFor(x_type), layer.tensors_of_x().input_scale, layer.shares_input_scale()};
}

// Tokens are multiplied before they spread over experts where these agree.
void SetScaledColumns(const CudaLayer& gate_up, const CudaLayer& down, MoeShape& shape) {
  if (gate_up.ScalerFor(shape.hidden_type) != nullptr) {
    const bool by_token = gate_up.shares_input_scale() && shape.top_k > 1;
    (by_token ? shape.scaled_token_columns : shape.scaled_slot_columns) = gate_up.shape().k;
  }
  if (down.ScalerFor(shape.hidden_type) != nullptr) {
    shape.scaled_slot_columns = std::max(shape.scaled_slot_columns, shape.hidden_columns);
  }
}

void SetActivation(const CudaLayer& gate_up, const MoeCall& call, MoeActivateArgs& activation) {
  activation.activation = ActivationOf(call.activation);
  activation.interleaved = gate_up.gate_up_interleaved();
  activation.has_limit = call.limit > 0;
  activation.alpha = call.alpha;
  activation.limit = call.limit;
}

}  // namespace

absl::StatusOr<GemmArgs> MakeGemmArgs(const CudaLayer& layer, const GemmCall& call) {
  if (layer.has_activation_zero_point() && call.x.type.bits == 8 && !call.x_scale.has_value()) {
    return Error(absl::StatusCode::kUnimplemented, "UNSUPPORTED_OPTION",
                 "x has the layer's static scale and zero point: no kernel of this device takes zero "
                 "points of activations off; give x_scale, or x of 16 bits");
  }
  GemmArgs args{};
  args.weights = layer.weights();
  args.x = Pointer<const void>(call.x.address);
  args.y = Pointer<void>(call.y.address);
  args.x_row_stride = call.x.row_stride;
  args.y_row_stride = call.y.row_stride;
  args.m = call.x.rows;
  GEMMD_ASSIGN_OR_RETURN(args.x_type, ElementTypeOf(call.x.type, call.x.is_signed_int));
  GEMMD_ASSIGN_OR_RETURN(args.y_type, ElementTypeOf(call.y.type, call.y.is_signed_int));
  args.split_activations = args.x_type == ElementType::kFloat32;
  SetActivationScales(layer, call, args);
  return args;
}

DenseOptions DenseOptionsOf(const GemmCall& call) {
  return {call.batch_invariant, call.numerics, call.fp16_accumulation};
}

absl::StatusOr<MoeShape> MakeMoeShape(const CudaLayer& gate_up, const CudaLayer& down,
                                      const MoeCall& call) {
  MoeShape shape;
  shape.tokens = call.x.rows;
  shape.top_k = TopKOf(call);
  shape.experts = call.gate_up->shape().experts;
  shape.gate_up_columns = call.gate_up->shape().n;
  shape.hidden_columns = call.down->shape().k;
  shape.out_columns = call.down->shape().n;
  GEMMD_ASSIGN_OR_RETURN(shape.hidden_type, ElementTypeOf(call.x.type, call.x.is_signed_int));
  shape.routes = call.router_logits.has_value();
  SetScaledColumns(gate_up, down, shape);
  return shape;
}

absl::StatusOr<MoeLaunch> MakeMoeLaunch(const CudaLayer& gate_up, const CudaLayer& down,
                                        const MoeCall& call, int64_t first_token, int64_t tokens,
                                        uintptr_t workspace) {
  MoeLaunch launch{};
  GEMMD_ASSIGN_OR_RETURN(launch.shape, MakeMoeShape(gate_up, down, call));
  launch.shape.tokens = tokens;
  const int64_t slots = tokens * launch.shape.top_k;
  launch.kernels = gate_up.moe_kernels();
  launch.gate_up_kernel = &gate_up.indexed().KernelFor(slots);
  launch.down_kernel = &down.indexed().KernelFor(slots);
  launch.gate_up = gate_up.weights();
  launch.down = down.weights();
  launch.gate_up_scale = InputScaleOf(gate_up, launch.shape.hidden_type);
  launch.down_scale = InputScaleOf(down, launch.shape.hidden_type);
  launch.x = Pointer<const void>(RowAddress(call.x, first_token));
  launch.y = Pointer<void>(RowAddress(call.y, first_token));
  launch.x_row_stride = call.x.row_stride;
  launch.y_row_stride = call.y.row_stride;
  launch.x_type = launch.shape.hidden_type;
  GEMMD_ASSIGN_OR_RETURN(launch.y_type, ElementTypeOf(call.y.type, call.y.is_signed_int));
  SetRouting(call, first_token, launch);
  GEMMD_RETURN_IF_ERROR(SetRouter(call, first_token, launch));
  SetActivation(gate_up, call, launch.activation);
  launch.router_weight_on_input = call.router_weight_on_input;
  launch.workspace = workspace;
  return launch;
}

uint64_t ArmedNumerics(const LayerPlan& plan, const DenseRequest& request,
                       const GemmKernel& served) {
  const GemmKernel* const armed = plan.ArmedFor(request);
  return armed == nullptr || armed->numerics == served.numerics ? 0 : armed->numerics;
}

CallReport ReportOf(const GemmKernel& kernel, const QuantSpec& spec, const NumberFormat& x,
                    const std::string& why) {
  CallReport report;
  report.kernel = kernel.name;
  report.numerics = kernel.numerics;
  report.activation_used = x;
  if (!spec.activation.present() || spec.activation == x) return report;
  report.reason = absl::StrCat("the layer asks for ", FormatName(spec.activation),
                               " activations; x is ", FormatName(x), " and is used as it is");
  if (spec.activation.bits < x.bits) absl::StrAppend(&report.reason, ": ", why);
  return report;
}

}  // namespace gemmd
