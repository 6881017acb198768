#include "core/quant/quantize_layer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/quant/quantize.h"
#include "core/quant/reference.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

std::string NumbersOf(const NumberFormat& format) {
  return absl::StrCat(static_cast<int>(format.kind), ".", format.bits, ".", format.exponent_bits, ".",
                      format.mantissa_bits, ".", static_cast<int>(format.special));
}

bool IsUnquantized(const NumberFormat& format) {
  return format == kFloat16 || format == kBFloat16 || format == kFloat32;
}

absl::Status AlreadyQuantized(absl::string_view message) {
  return Error(absl::StatusCode::kInvalidArgument, "ALREADY_QUANTIZED", message);
}

// Tensors of activations that only a calibration gives.
absl::Status CheckEncoding(const ActivationEncoding& encoding) {
  const char* unsupported = nullptr;
  if (encoding.scale == ActivationScaleKind::kStaticTensor) unsupported = "static activation scales";
  if (encoding.group_scale == kFloat8E4M3) unsupported = "a global scale of activations";
  if (unsupported == nullptr) return absl::OkStatus();
  return Error(absl::StatusCode::kUnimplemented, "UNSUPPORTED_SPEC",
               absl::StrCat("weights cannot be quantized to a spec with ", unsupported));
}

absl::Status CheckBlocks(const QuantSpec& spec) {
  constexpr int64_t kLargest = int64_t{1} << 40;  // sums of extents stay below 2^63
  for (const auto& [name, value] : {std::pair("scale_block_n", spec.scale_block_n),
                                    {"scale_block_k", spec.scale_block_k},
                                    {"activation_group", spec.activation_group}}) {
    if (value <= kLargest) continue;
    return Error(absl::StatusCode::kInvalidArgument, "SHAPE_MISMATCH",
                 absl::StrCat(name, " is ", value, ", expected at most 2^40"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string QuantizeTarget::Text() const {
  return absl::StrCat(
      "weight ", NumbersOf(spec.weight), " scale ", NumbersOf(spec.scale), " ", spec.scale_block_n, "x",
      spec.scale_block_k, " zero ", static_cast<int>(spec.zero_point), " secondary ",
      static_cast<int>(spec.secondary_scale), " activation ", NumbersOf(spec.activation), " ",
      static_cast<int>(spec.activation_scale), "x", spec.activation_group, " encoding ",
      NumbersOf(encoding.format), " ", static_cast<int>(encoding.scale), "x", encoding.group, " zero ",
      encoding.zero_points ? 1 : 0, " scale ", NumbersOf(encoding.group_scale), " rule ",
      static_cast<int>(rule));
}

absl::Status CheckTarget(const QuantizeTarget& target) {
  GEMMD_RETURN_IF_ERROR(CheckCanBeMade(target.spec));
  GEMMD_RETURN_IF_ERROR(CheckEncoding(target.encoding));
  GEMMD_RETURN_IF_ERROR(CheckBlocks(target.spec));
  if (IsUnquantized(target.spec.weight)) {
    return Error(absl::StatusCode::kInvalidArgument, "BAD_SPEC",
                 absl::StrCat("weights of ", target.spec.weight.bits,
                              " bits are not quantized; expected 1 to 8 bits"));
  }
  StandardTensor any;
  any.spec = target.spec;
  any.encoding = target.encoding;
  any.shape = {1, 1, 1};
  return TensorSizes(any).status();
}

absl::Status CheckUnquantized(const StandardTensor& source) {
  const QuantSpec& spec = source.spec;
  if (!IsUnquantized(spec.weight)) {
    return AlreadyQuantized(
        absl::StrCat("its weights have ", spec.weight.bits,
                     " bits; only float16, bfloat16 and float32 weights can be quantized"));
  }
  if (spec.scale.present() || spec.secondary_scale != SecondaryScaleKind::kNone ||
      spec.has_group_index) {
    return AlreadyQuantized("its weights have scales; only those without can be quantized");
  }
  if (spec.activation.present() || source.encoding.present()) {
    return AlreadyQuantized(
        "it says how activations are quantized, which the target decides where weights are quantized");
  }
  return absl::OkStatus();
}

absl::StatusOr<StandardTensor> QuantizeLayer(StandardTensor source, const QuantizeTarget& target,
                                             const QuantizeWork& work, QuantizationError* error) {
  GEMMD_RETURN_IF_ERROR(CheckTarget(target));
  GEMMD_RETURN_IF_ERROR(CheckUnquantized(source));
  const auto read = [&source](int64_t expert, int64_t row, absl::Span<float> out) {
    UnquantizedRow(source, expert, row, out);
  };
  GEMMD_ASSIGN_OR_RETURN(
      StandardTensor out,
      QuantizeRows(read, source.shape, target.spec, target.rule, work, error));
  out.encoding = target.encoding;
  out.spec.bias = source.spec.bias;
  out.bias = std::move(source.bias);
  out.has_input_scale = source.has_input_scale;
  out.input_scale = std::move(source.input_scale);
  out.gate_up_interleaved = source.gate_up_interleaved;
  return out;
}

}  // namespace gemmd
