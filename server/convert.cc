#include "server/convert.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/convert_errors.h"

namespace gemmd {
namespace {

constexpr float kDefaultAlpha = 1.702f;  // gpt-oss
constexpr float kDefaultLimit = 7.0f;

absl::Status CheckOptions(const v1::GemmOptions& options) {
  if (options.numerics() != 0 && !options.batch_invariant()) {
    return MissingField("options.batch_invariant (options.numerics is given)");
  }
  return absl::OkStatus();
}

absl::Status OptionalTensor(bool present, const v1::TensorRef& from, const char* field,
                            std::optional<TensorRef>& to) {
  if (!present) return absl::OkStatus();
  GEMMD_ASSIGN_OR_RETURN(to, FromProto(from, field));
  return absl::OkStatus();
}

absl::Status RequiredTensor(bool present, const v1::TensorRef& from, const char* field,
                            TensorRef& to) {
  if (!present) return MissingField(field);
  GEMMD_ASSIGN_OR_RETURN(to, FromProto(from, field));
  return absl::OkStatus();
}

absl::StatusOr<ActivationFunction> ActivationOf(v1::ActivationFunction from) {
  switch (from) {
    case v1::ACTIVATION_FUNCTION_UNSPECIFIED:
    case v1::ACTIVATION_FUNCTION_SILU_AND_MUL:
      return ActivationFunction::kSiluAndMul;
    case v1::ACTIVATION_FUNCTION_SWIGLU_CLAMPED:
      return ActivationFunction::kSwigluClamped;
    case v1::ACTIVATION_FUNCTION_RELU_SQUARED:
      return ActivationFunction::kReluSquared;
    default:
      return UnknownEnum("activation", from);
  }
}

absl::Status ConvertActivation(const v1::MoeRequest& from, MoeRequest& to) {
  GEMMD_ASSIGN_OR_RETURN(to.activation, ActivationOf(from.activation()));
  if (!std::isfinite(from.alpha())) return OutOfRange("alpha", from.alpha(), "finite");
  if (!(from.limit() >= 0) || std::isinf(from.limit())) {
    return OutOfRange("limit", from.limit(), "finite and 0 or more");
  }
  const bool clamped = to.activation == ActivationFunction::kSwigluClamped;
  to.alpha = from.alpha() == 0 ? kDefaultAlpha : from.alpha();
  to.limit = clamped && from.limit() == 0 ? kDefaultLimit : from.limit();
  return absl::OkStatus();
}

absl::Status ConvertRouting(const v1::MoeRequest& from, MoeRequest& to) {
  switch (from.routing_case()) {
    case v1::MoeRequest::kTopK: {
      const v1::TopK& top_k = from.top_k();
      if (!top_k.has_ids()) return MissingField("top_k.ids");
      if (!top_k.has_weights()) return MissingField("top_k.weights");
      GEMMD_RETURN_IF_ERROR(OptionalTensor(true, top_k.ids(), "top_k.ids", to.topk_ids));
      return OptionalTensor(true, top_k.weights(), "top_k.weights", to.topk_weights);
    }
    case v1::MoeRequest::kRouterLogits: {
      const v1::RouterLogits& router = from.router_logits();
      constexpr uint32_t kMaxTopK = std::numeric_limits<int>::max();
      if (!router.has_logits()) return MissingField("router_logits.logits");
      if (router.top_k() < 1 || router.top_k() > kMaxTopK) {
        return OutOfRange("router_logits.top_k", router.top_k(),
                          absl::StrCat("in [1, ", kMaxTopK, "]"));
      }
      to.top_k = static_cast<int>(router.top_k());
      to.renormalize = router.renormalize();
      return OptionalTensor(true, router.logits(), "router_logits.logits", to.router_logits);
    }
    case v1::MoeRequest::ROUTING_NOT_SET:
      break;
  }
  return MissingField("routing (top_k or router_logits)");
}

const char* NameOf(LayerState state) {
  switch (state) {
    case LayerState::kLoading:
      return "LOADING";
    case LayerState::kQuantizing:
      return "QUANTIZING";
    case LayerState::kPacking:
      return "PACKING";
    case LayerState::kReady:
      return "READY";
    case LayerState::kReleased:
      return "RELEASED";
    case LayerState::kFailed:
      break;
  }
  return "FAILED";
}

v1::RegisterLayerProgress::Stage StageOf(LayerState state) {
  switch (state) {
    case LayerState::kQuantizing:
      return v1::RegisterLayerProgress::STAGE_QUANTIZING;
    case LayerState::kPacking:
      return v1::RegisterLayerProgress::STAGE_PACKING;
    default:
      return v1::RegisterLayerProgress::STAGE_LOADING;
  }
}

v1::ScaleRule RuleTo(ScaleRule rule) {
  switch (rule) {
    case ScaleRule::kLargest:
      return v1::SCALE_RULE_LARGEST;
    case ScaleRule::kFullRange:
      return v1::SCALE_RULE_FULL_RANGE;
    case ScaleRule::kOcp:
      return v1::SCALE_RULE_OCP;
    case ScaleRule::kNearestPower:
      return v1::SCALE_RULE_NEAREST_POWER;
  }
  return v1::SCALE_RULE_UNSPECIFIED;
}

v1::ExecutionReport ReportOf(const std::string& device, const CallReport& report,
                             const Timing& timing) {
  v1::ExecutionReport to;
  to.set_device(device);
  to.set_kernel(report.kernel);
  if (report.activation_used.present())
    *to.mutable_activation_used() = ToProto(report.activation_used);
  to.set_reason(report.reason);
  to.set_queue_us(absl::ToDoubleMicroseconds(timing.queued));
  to.set_execute_us(absl::ToDoubleMicroseconds(timing.executed));
  to.set_numerics(report.numerics);
  to.set_armed_numerics(report.armed_numerics);
  to.set_hadamard_block(static_cast<uint32_t>(report.hadamard_block));
  return to;
}

}  // namespace

absl::StatusOr<RegionRequest> FromProto(const v1::RegisterRegionRequest& from) {
  RegionRequest to;
  to.device = from.device();
  to.label = from.label();
  GEMMD_RETURN_IF_ERROR(CheckLength("label", to.label));
  switch (from.source_case()) {
    case v1::RegisterRegionRequest::kCudaIpc: {
      const v1::CudaIpcMemory& ipc = from.cuda_ipc();
      to.source = CudaIpcSource{ipc.handle(), ipc.offset(), ipc.size(), ipc.allocation_size(),
                                ipc.buffer_id()};
      return to;
    }
    case v1::RegisterRegionRequest::kPassed:
      to.source =
          PassedSource{from.passed().ticket(), from.passed().offset(), from.passed().size()};
      return to;
    case v1::RegisterRegionRequest::kDaemonOwned:
      to.source = DaemonSource{from.daemon_owned().size()};
      return to;
    case v1::RegisterRegionRequest::SOURCE_NOT_SET:
      break;
  }
  return MissingField("source (cuda_ipc, passed or daemon_owned)");
}

absl::StatusOr<LayerRequest> FromProto(const v1::RegisterLayerRequest& from) {
  LayerRequest to;
  to.device = from.device();
  to.name = from.name();
  GEMMD_RETURN_IF_ERROR(CheckLength("name", to.name));
  switch (from.source_case()) {
    case v1::RegisterLayerRequest::kCheckpoint: {
      GEMMD_ASSIGN_OR_RETURN(to.source, FromProto(from.checkpoint()));
      return to;
    }
    case v1::RegisterLayerRequest::kTensors: {
      GEMMD_ASSIGN_OR_RETURN(to.source, FromProto(from.tensors()));
      return to;
    }
    case v1::RegisterLayerRequest::SOURCE_NOT_SET:
      break;
  }
  return MissingField("source (checkpoint or tensors)");
}

absl::StatusOr<GemmRequest> FromProto(const v1::GemmRequest& from) {
  GemmRequest to;
  to.layer_id = from.layer_id();
  GEMMD_RETURN_IF_ERROR(CheckOptions(from.options()));
  GEMMD_RETURN_IF_ERROR(RequiredTensor(from.has_x(), from.x(), "x", to.x));
  GEMMD_RETURN_IF_ERROR(OptionalTensor(from.has_x_scale(), from.x_scale(), "x_scale", to.x_scale));
  GEMMD_RETURN_IF_ERROR(RequiredTensor(from.has_y(), from.y(), "y", to.y));
  to.batch_invariant = from.options().batch_invariant();
  to.numerics = from.options().numerics();
  to.hadamard_block = from.options().hadamard_block();
  to.fp16_accumulation = from.options().fp16_accumulation();
  return to;
}

absl::StatusOr<MoeRequest> FromProto(const v1::MoeRequest& from) {
  MoeRequest to;
  to.gate_up_layer_id = from.gate_up_layer_id();
  to.down_layer_id = from.down_layer_id();
  GEMMD_RETURN_IF_ERROR(RequiredTensor(from.has_x(), from.x(), "x", to.x));
  GEMMD_RETURN_IF_ERROR(RequiredTensor(from.has_y(), from.y(), "y", to.y));
  GEMMD_RETURN_IF_ERROR(ConvertRouting(from, to));
  GEMMD_RETURN_IF_ERROR(ConvertActivation(from, to));
  to.router_weight_on_input = from.router_weight_on_input();
  to.first_expert = from.first_expert();
  to.total_experts = from.total_experts();
  return to;
}

v1::RegionInfo ToProto(const RegionInfo& from) {
  v1::RegionInfo to;
  *to.mutable_region() = ToProto(from.ref);
  to.set_device(from.device);
  to.set_size(from.size);
  to.set_label(from.label);
  to.set_kind(from.kind);
  return to;
}

v1::LayerInfo ToProto(const LayerInfo& from) {
  v1::LayerInfo to;
  to.set_layer_id(from.layer_id);
  to.set_name(from.name);
  to.set_device(from.device);
  to.set_digest(from.digest);
  *to.mutable_spec() = ToProto(from.spec);
  to.set_experts(from.shape.experts);
  to.set_n(from.shape.n);
  to.set_k(from.shape.k);
  to.set_bytes(from.bytes);
  to.set_references(static_cast<uint32_t>(from.references));
  to.set_state(NameOf(from.state));
  to.set_source_format(from.source_format);
  to.set_gate_up_interleaved(from.gate_up_interleaved);
  to.set_has_input_scale(from.has_input_scale);
  to.set_not_finite_weights(from.not_finite_weights);
  if (from.quantized.has_value()) {
    to.set_quantized(RuleTo(from.quantized->rule));
    to.set_quantization_error(from.quantized->error.relative());
  }
  if (from.encoding.present()) *to.mutable_encoding() = ToProto(from.encoding);
  to.set_specialised_kernels(static_cast<uint32_t>(from.specialised.total));
  to.set_specialised_kernels_ready(static_cast<uint32_t>(from.specialised.ready));
  to.set_specialised_kernels_failed(static_cast<uint32_t>(from.specialised.failed));
  for (const KernelNumerics& numerics : from.numerics) *to.add_numerics() = ToProto(numerics);
  return to;
}

v1::RegisterLayerProgress ToProto(const LayerProgress& from) {
  v1::RegisterLayerProgress to;
  to.set_stage(StageOf(from.state));
  to.set_bytes_done(from.bytes_done);
  to.set_bytes_total(from.bytes_total);
  return to;
}

v1::RegisterLayerProgress ReadyToProto(const LayerInfo& from) {
  v1::RegisterLayerProgress to;
  to.set_stage(v1::RegisterLayerProgress::STAGE_READY);
  *to.mutable_layer() = ToProto(from);
  for (const std::string& note : from.notes) to.add_notes(note);
  return to;
}

v1::KernelChoice ToProto(const KernelExplanation& from) {
  v1::KernelChoice to;
  to.set_m(from.m);
  to.set_kernel(from.choice.kernel);
  if (from.choice.activation_used.present()) {
    *to.mutable_activation_used() = ToProto(from.choice.activation_used);
  }
  to.set_reason(from.choice.reason);
  for (const auto& [name, value] : from.config) (*to.mutable_config())[name] = value;
  return to;
}

v1::GemmResponse ToProto(const GemmResult& from) {
  v1::GemmResponse to;
  *to.mutable_report() = ReportOf(from.device, from.report, from.timing);
  return to;
}

v1::MoeResponse ToProto(const MoeResult& from) {
  v1::MoeResponse to;
  *to.mutable_gate_up() = ReportOf(from.device, from.report.gate_up, from.timing);
  *to.mutable_down() = ReportOf(from.device, from.report.down, from.timing);
  return to;
}

v1::SessionInfo ToProto(const SessionInfo& from) {
  v1::SessionInfo to;
  to.set_session_id(from.session_id);
  to.set_name(from.name);
  to.set_pid(static_cast<uint32_t>(from.pid));
  to.set_uid(from.uid);
  to.set_transport(from.transport);
  to.set_layers(static_cast<uint32_t>(from.layers));
  to.set_regions(static_cast<uint32_t>(from.regions));
  to.set_region_bytes(from.region_bytes);
  to.set_requests(from.requests);
  to.set_queued(static_cast<uint32_t>(from.queued));
  const int64_t age = absl::ToInt64Seconds(absl::Now() - from.opened_at);
  to.set_age_seconds(age > 0 ? static_cast<uint64_t>(age) : 0);
  return to;
}

v1::DeviceInfo ToProto(const DeviceStatus& from) {
  v1::DeviceInfo to;
  to.set_id(from.description.id);
  to.set_name(from.description.name);
  to.set_architecture(from.description.architecture);
  to.set_multiprocessors(static_cast<uint32_t>(from.description.multiprocessors));
  to.set_memory_bytes(from.description.memory_bytes);
  to.set_ready(from.health.ok());
  to.set_not_ready_reason(std::string(from.health.message()));
  to.set_weights_bytes(from.weights_bytes);
  return to;
}

}  // namespace gemmd
