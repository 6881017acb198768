#include "client/gemmctl/quantize_option.h"

#include "absl/strings/str_cat.h"
#include "client/quantize_to.h"
#include "kernels/base/status.h"

namespace gemmd::gemmctl {
namespace {

NumberFormat CoreFormat(const v1::NumberFormat& from) {
  switch (from.kind()) {
    case v1::NUMBER_KIND_INTEGER:
      return IntegerFormat(static_cast<int>(from.bits()));
    case v1::NUMBER_KIND_EXPONENT:
      return kFloat8E8M0;
    case v1::NUMBER_KIND_FLOAT:
      break;
    default:
      return kNoFormat;
  }
  SpecialValues special = SpecialValues::kNone;
  if (from.special() == v1::SPECIAL_VALUES_NAN_ONLY) special = SpecialValues::kNanOnly;
  if (from.special() == v1::SPECIAL_VALUES_IEEE) special = SpecialValues::kIeee;
  return FloatFormat(static_cast<int>(from.exponent_bits()), static_cast<int>(from.mantissa_bits()), special);
}

// Core's enumerations have the order of the wire's, whose first value is "unspecified" and means the second.
template <typename Core, typename Wire>
Core CoreEnum(Wire from) {
  return static_cast<Core>(from == 0 ? 0 : static_cast<int>(from) - 1);
}

}  // namespace

Option QuantizeOption(const std::string& when) {
  return {"quantize", 0, "SPEC", "",
          when + "quantize unquantized weights, as in int4,group=128 or nvfp4 ('gemmctl register --help')"};
}

std::string QuantizeHelp() {
  std::string text =
      "  SPEC of --quantize says what float16, bfloat16 or float32 weights become. It is a type, "
      "then\n"
      "  words after commas:\n"
      "    int1 ... int8, eXmY (e2m1, e4m3, e5m2)   the type of the weights\n"
      "    channel | tensor | group=K | block=NxK   one scale per row (the default), in all, per K "
      "columns\n"
      "                                             of a row, per N rows and K columns\n"
      "    scale=f16|bf16|f32|e4m3|e5m2|e8m0|none   type of the scales; else f16 for integers, f32 "
      "for floats\n"
      "    zero=int|float                           zero points beside the scales (integers)\n"
      "    secondary=tensor|channel                 float32 scales of the scales\n"
      "    rule=largest|full_range|ocp|nearest_power  how a scale follows from its weights; "
      "largest: its\n"
      "                                             largest magnitude becomes the type's largest "
      "value,\n"
      "                                             but rounding the scale (f16, bf16, e4m3, e5m2) "
      "or the\n"
      "                                             zero point (int) may make it saturate\n"
      "    x=int8|e4m3|..., x_group=K, x_scale=f32|e8m0   how x is quantized, with a scale per row "
      "or K columns\n"
      "  or a preset, whose words later ones replace (w4a16,group=64; fp8,x=none), but not without "
      "scales:\n";
  for (const auto& [name, meaning] : client::QuantizePresets()) {
    absl::StrAppend(&text, "    ", name, std::string(name.size() < 10 ? 10 - name.size() : 1, ' '), meaning, "\n");
  }
  return text +
         "  mxfp4, mxfp8 and nvfp4 are formats of weights, x stays as it is. x in blocks of its own (mxfp8,x=e4m3,\n"
         "  x_group=32,x_scale=e8m0) is what no device makes of x of 16 bits today: it is used as it is, and replies\n"
         "  say so ('gemmctl inspect DIR --quantize SPEC' does before).\n"
         "  Weights are rounded to nearest, ties to even, each stored module by itself, before it is joined\n"
         "  with others and cut. A module that is quantized already is an error.";
}

absl::StatusOr<std::optional<v1::QuantizeTo>> QuantizeOf(const Arguments& arguments) {
  if (!arguments.Has("quantize")) return std::nullopt;
  const std::string text = arguments.Text("quantize");
  const absl::StatusOr<v1::QuantizeTo> parsed = client::ParseQuantizeTo(text);
  if (!parsed.ok()) return Annotate(parsed.status(), absl::StrCat("--quantize '", text, "'"));
  return *parsed;
}

QuantizeTarget TargetOf(const v1::QuantizeTo& from) {
  const v1::QuantSpec& spec = from.spec();
  QuantizeTarget to;
  to.spec.weight = CoreFormat(spec.weight());
  to.spec.scale = CoreFormat(spec.scale());
  to.spec.scale_block_n = static_cast<int64_t>(spec.scale_block_n());
  to.spec.scale_block_k = static_cast<int64_t>(spec.scale_block_k());
  to.spec.zero_point = CoreEnum<ZeroPointKind>(spec.zero_point());
  to.spec.secondary_scale = CoreEnum<SecondaryScaleKind>(spec.secondary_scale());
  to.spec.activation = CoreFormat(spec.activation());
  to.spec.activation_scale = CoreEnum<ActivationScaleKind>(spec.activation_scale());
  to.spec.activation_group = static_cast<int64_t>(spec.activation_group());
  to.rule = CoreEnum<ScaleRule>(from.rule());
  to.encoding.format = CoreFormat(from.encoding().format());
  to.encoding.scale = CoreEnum<ActivationScaleKind>(from.encoding().scale());
  to.encoding.group = static_cast<int64_t>(from.encoding().group());
  to.encoding.group_scale = CoreFormat(from.encoding().group_scale());
  return to;
}

absl::StatusOr<std::optional<QuantizeTarget>> QuantizeTargetOf(const Arguments& arguments) {
  GEMMD_ASSIGN_OR_RETURN(const std::optional<v1::QuantizeTo> quantize, QuantizeOf(arguments));
  if (!quantize.has_value()) return std::nullopt;
  const QuantizeTarget target = TargetOf(*quantize);
  GEMMD_RETURN_IF_ERROR(Annotate(CheckTarget(target), "--quantize"));
  return target;
}

}  // namespace gemmd::gemmctl
