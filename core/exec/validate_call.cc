// Checks of a request against its layers that need no device. Addresses were checked when the views
// were made (core/session/region.h).
#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/exec/cpu_numbers.h"
#include "core/exec/device.h"
#include "kernels/base/status.h"
#include "kernels/contract/quantize_args.h"

namespace gemmd {
namespace {

absl::Status ShapeMismatch(absl::string_view message) {
  return Error(absl::StatusCode::kInvalidArgument, "SHAPE_MISMATCH", message);
}

absl::Status UnsupportedType(absl::string_view field, const NumberFormat& type,
                             absl::string_view allowed) {
  return Error(absl::StatusCode::kUnimplemented, "UNSUPPORTED_DTYPE",
               absl::StrCat(field, " has type ", FormatName(type), ", expected ", allowed));
}

bool IsWideFloat(const NumberFormat& type) {
  return type == kFloat16 || type == kBFloat16 || type == kFloat32;
}
bool IsEightBit(const MatrixView& view) {
  return view.type == kFloat8E4M3 || view.type == kFloat8E5M2 ||
         (view.type == kInt8 && view.is_signed_int);
}
bool IsInt32(const MatrixView& view) {
  return view.type == IntegerFormat(32) && view.is_signed_int;
}

absl::Status CheckExtent(absl::string_view field, absl::string_view extent, int64_t got,
                         int64_t expected) {
  if (got == expected) return absl::OkStatus();
  return ShapeMismatch(absl::StrCat(field, " has ", got, " ", extent, ", expected ", expected));
}

absl::Status CheckShape(absl::string_view field, const MatrixView& view, int64_t rows,
                        int64_t columns) {
  GEMMD_RETURN_IF_ERROR(CheckExtent(field, "rows", view.rows, rows));
  return CheckExtent(field, "columns", view.columns, columns);
}

// Bytes [begin, end) a view touches.
struct Range {
  uintptr_t begin = 0;
  uintptr_t end = 0;
};
Range RangeOf(const MatrixView& view) {
  if (view.rows == 0 || view.columns == 0) return {};
  const int64_t elements = (view.rows - 1) * view.row_stride + view.columns;
  return {view.address, view.address + static_cast<uintptr_t>(elements * ElementBytes(view.type))};
}

// Column slices of one buffer interleave without touching: with equal row pitch the distance of the
// two starts within a row decides.
bool Interleave(const MatrixView& a, const MatrixView& b) {
  const int64_t pitch = a.row_stride * ElementBytes(a.type);
  if (pitch != b.row_stride * ElementBytes(b.type) || pitch == 0) return false;
  const int64_t distance = static_cast<int64_t>(b.address - a.address) % pitch;
  const int64_t from_a = distance < 0 ? distance + pitch : distance;
  return from_a >= a.columns * ElementBytes(a.type) &&
         pitch - from_a >= b.columns * ElementBytes(b.type);
}

bool Overlap(const MatrixView& a, const MatrixView& b) {
  const Range first = RangeOf(a);
  const Range second = RangeOf(b);
  const bool ranges_meet = first.begin < second.end && second.begin < first.end;
  return ranges_meet && !Interleave(a, b);
}

absl::Status CheckNoOverlap(const MatrixView& y, absl::string_view field, const MatrixView& input) {
  if (!Overlap(y, input)) return absl::OkStatus();
  return ShapeMismatch(absl::StrCat("y and ", field, " share memory"));
}

absl::Status CheckOutput(const MatrixView& y) {
  if (IsWideFloat(y.type)) return absl::OkStatus();
  return UnsupportedType("y", y.type, "float16, bfloat16 or float32");
}

absl::Status CheckScaleOfX(const GemmCall& call) {
  const MatrixView& scale = *call.x_scale;
  if (!IsEightBit(call.x)) {
    return ShapeMismatch(absl::StrCat("x_scale is given, but x is ", FormatName(call.x.type),
                                      ": scales belong to 8-bit x"));
  }
  if (!(scale.type == kFloat32)) return UnsupportedType("x_scale", scale.type, "float32");
  GEMMD_RETURN_IF_ERROR(CheckExtent("x_scale", "rows", scale.rows, call.x.rows));
  if (scale.columns == 1) return absl::OkStatus();
  const int64_t group = call.layer->spec().activation_group;
  if (group <= 0) {
    return ShapeMismatch(absl::StrCat("x_scale has ", scale.columns,
                                      " columns, expected 1: the layer has no activation groups"));
  }
  return CheckExtent("x_scale", "columns", scale.columns, (call.x.columns + group - 1) / group);
}

absl::Status CheckLayer(absl::string_view field, const std::shared_ptr<DeviceLayer>& layer) {
  if (layer != nullptr) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, "LAYER_NOT_FOUND",
               absl::StrCat(field, " is missing"));
}

// ---- mixture of experts ----

absl::Status CheckExpertLayers(const MoeCall& call) {
  GEMMD_RETURN_IF_ERROR(CheckLayer("gate_up", call.gate_up));
  GEMMD_RETURN_IF_ERROR(CheckLayer("down", call.down));
  const LayerShape& gate_up = call.gate_up->shape();
  const LayerShape& down = call.down->shape();
  GEMMD_RETURN_IF_ERROR(CheckExtent("down", "experts", down.experts, gate_up.experts));
  const int64_t factor = call.activation == ActivationFunction::kReluSquared ? 1 : 2;
  int64_t expected = 0;
  if (__builtin_mul_overflow(factor, down.k, &expected)) expected = -1;
  if (gate_up.n == expected) return absl::OkStatus();
  return ShapeMismatch(absl::StrCat("gate_up has ", gate_up.n, " rows, expected ", factor, " * ",
                                    down.k, " (down's k) = ", expected));
}

absl::Status CheckExpertRange(const MoeCall& call) {
  constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();  // ids are int32 everywhere
  const int64_t experts = call.gate_up->shape().experts;
  const auto bad = [](absl::string_view message) {
    return Error(absl::StatusCode::kInvalidArgument, "EXPERT_OUT_OF_RANGE", message);
  };
  // First what does not need total_experts: its default is made of first_expert.
  if (call.first_expert < 0) {
    return bad(absl::StrCat("first_expert is ", call.first_expert, ", expected 0 or more"));
  }
  const std::string last =
      absl::StrCat("first_expert ", call.first_expert, " + ", experts, " experts of the layer is ");
  if (experts > kLargest || call.first_expert > kLargest - experts) {
    return bad(absl::StrCat(last, "beyond 2^31 - 1"));
  }
  if (call.first_expert + experts > call.total_experts) {
    return bad(absl::StrCat(last, "not within total_experts ", call.total_experts));
  }
  if (call.total_experts <= kLargest) return absl::OkStatus();
  return bad(absl::StrCat("total_experts ", call.total_experts, " is beyond 2^31 - 1"));
}

absl::Status CheckTopK(int64_t top_k, int64_t total_experts) {
  if (top_k >= 1 && top_k <= total_experts) return absl::OkStatus();
  return ShapeMismatch(
      absl::StrCat("top_k is ", top_k, ", expected 1 to ", total_experts, " (total_experts)"));
}

absl::Status CheckChosenExperts(const MoeCall& call) {
  const MatrixView& ids = *call.topk_ids;
  const MatrixView& weights = *call.topk_weights;
  if (!IsInt32(ids)) return UnsupportedType("topk_ids", ids.type, "int32");
  if (!(weights.type == kFloat32)) {
    return UnsupportedType("topk_weights", weights.type, "float32");
  }
  GEMMD_RETURN_IF_ERROR(CheckExtent("topk_ids", "rows", ids.rows, call.x.rows));
  GEMMD_RETURN_IF_ERROR(CheckTopK(ids.columns, call.total_experts));
  GEMMD_RETURN_IF_ERROR(CheckShape("topk_weights", weights, ids.rows, ids.columns));
  GEMMD_RETURN_IF_ERROR(CheckNoOverlap(call.y, "topk_ids", ids));
  return CheckNoOverlap(call.y, "topk_weights", weights);
}

absl::Status CheckLogits(const MoeCall& call) {
  const RouterLogits& router = *call.router_logits;
  if (!IsWideFloat(router.logits.type)) {
    return UnsupportedType("router_logits", router.logits.type, "float16, bfloat16 or float32");
  }
  GEMMD_RETURN_IF_ERROR(
      CheckShape("router_logits", router.logits, call.x.rows, call.total_experts));
  GEMMD_RETURN_IF_ERROR(CheckTopK(router.top_k, call.total_experts));
  return CheckNoOverlap(call.y, "router_logits", router.logits);
}

absl::Status CheckRouting(const MoeCall& call) {
  const bool by_ids = call.topk_ids.has_value() && call.topk_weights.has_value();
  const bool any_ids = call.topk_ids.has_value() || call.topk_weights.has_value();
  if (call.router_logits.has_value() == any_ids || any_ids != by_ids) {
    return ShapeMismatch("routing is either topk_ids with topk_weights, or router_logits");
  }
  GEMMD_RETURN_IF_ERROR(by_ids ? CheckChosenExperts(call) : CheckLogits(call));
  const int64_t top_k = by_ids ? call.topk_ids->columns : call.router_logits->top_k;
  if (!call.router_weight_on_input || top_k == 1) return absl::OkStatus();
  return ShapeMismatch(
      absl::StrCat("router_weight_on_input needs top_k = 1, the request has ", top_k));
}

absl::Status CheckActivation(const MoeCall& call) {
  if (!(call.limit >= 0)) {
    return ShapeMismatch(absl::StrCat("limit is ", call.limit, ", expected 0 or more"));
  }
  if (call.activation != ActivationFunction::kSwigluClamped || call.limit > 0) {
    return absl::OkStatus();
  }
  return ShapeMismatch("limit is 0, the clamped activation needs a positive one");
}

// Whether its kernel takes such x is the device's to say.
absl::Status CheckNumerics(const GemmCall& call) {
  if (call.numerics == 0) return absl::OkStatus();
  const std::vector<KernelNumerics> known = call.layer->numerics();
  for (const KernelNumerics& numerics : known) {
    if (numerics.id == call.numerics) return absl::OkStatus();
  }
  std::string text;
  for (const KernelNumerics& numerics : known) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", absl::Hex(numerics.id, absl::kZeroPad16), " (",
                    numerics.kernel, ")");
  }
  return Error(absl::StatusCode::kFailedPrecondition, "NUMERICS_NOT_READY",
               absl::StrCat("numerics ", absl::Hex(call.numerics, absl::kZeroPad16),
                            " are not the layer's now; it has ", text.empty() ? "none" : text));
}

// "2, 4, 8" for a K of 24.
std::string LegalHadamardBlocks(int64_t k) {
  std::string text;
  for (int64_t block = kLeastHadamardBlock; block <= kLargestHadamardBlock && k % block == 0; block *= 2) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", block);
  }
  return text.empty() ? "none, K is odd" : text;
}

absl::Status CheckHadamard(const GemmCall& call) {
  const int64_t block = call.hadamard_block;
  if (block == 0) return absl::OkStatus();
  if (!IsHadamardBlock(block) || call.x.columns % block != 0) {
    return Error(absl::StatusCode::kInvalidArgument, "OUT_OF_RANGE",
                 absl::StrCat("options.hadamard_block is ", block, ", expected one of the blocks for K = ",
                              call.x.columns, ": ", LegalHadamardBlocks(call.x.columns)));
  }
  if (IsWideFloat(call.x.type)) return absl::OkStatus();
  return ShapeMismatch(absl::StrCat("options.hadamard_block is ", block, ", but x is ",
                                    FormatName(call.x.type),
                                    ": what is quantized already cannot be transformed before it"));
}

}  // namespace

absl::Status ValidateCall(const GemmCall& call) {
  GEMMD_RETURN_IF_ERROR(CheckLayer("layer", call.layer));
  const LayerShape& shape = call.layer->shape();
  GEMMD_RETURN_IF_ERROR(CheckExtent("layer", "experts", shape.experts, 1));
  GEMMD_RETURN_IF_ERROR(CheckNumerics(call));
  if (!IsWideFloat(call.x.type) && !IsEightBit(call.x)) {
    return UnsupportedType("x", call.x.type, "float16, bfloat16, float32, e4m3, e5m2 or int8");
  }
  GEMMD_RETURN_IF_ERROR(CheckExtent("x", "columns", call.x.columns, shape.k));
  GEMMD_RETURN_IF_ERROR(CheckHadamard(call));
  GEMMD_RETURN_IF_ERROR(CheckOutput(call.y));
  GEMMD_RETURN_IF_ERROR(CheckShape("y", call.y, call.x.rows, shape.n));
  GEMMD_RETURN_IF_ERROR(CheckNoOverlap(call.y, "x", call.x));
  if (!call.x_scale.has_value()) return absl::OkStatus();
  GEMMD_RETURN_IF_ERROR(CheckScaleOfX(call));
  return CheckNoOverlap(call.y, "x_scale", *call.x_scale);
}

absl::Status ValidateCall(const MoeCall& call) {
  GEMMD_RETURN_IF_ERROR(CheckExpertLayers(call));
  GEMMD_RETURN_IF_ERROR(CheckExpertRange(call));
  if (!IsWideFloat(call.x.type)) {
    return UnsupportedType("x", call.x.type, "float16, bfloat16 or float32");
  }
  GEMMD_RETURN_IF_ERROR(CheckExtent("x", "columns", call.x.columns, call.gate_up->shape().k));
  GEMMD_RETURN_IF_ERROR(CheckOutput(call.y));
  GEMMD_RETURN_IF_ERROR(CheckShape("y", call.y, call.x.rows, call.down->shape().n));
  GEMMD_RETURN_IF_ERROR(CheckNoOverlap(call.y, "x", call.x));
  GEMMD_RETURN_IF_ERROR(CheckActivation(call));
  return CheckRouting(call);
}

}  // namespace gemmd
