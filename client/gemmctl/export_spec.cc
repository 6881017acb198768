#include "client/gemmctl/export_spec.h"

#include "absl/strings/str_cat.h"

namespace gemmd::gemmctl {
namespace {

// Names of enumerations, in their order.
constexpr const char* kKinds[] = {"none", "integer", "float", "exponent"};
constexpr const char* kSpecials[] = {"none", "nan_only", "ieee"};
constexpr const char* kZeroPoints[] = {"none", "integer", "float"};
constexpr const char* kSecondaryScales[] = {"none", "tensor", "channel"};
constexpr const char* kActivationScales[] = {"none", "static_tensor", "dynamic_token",
                                             "dynamic_group"};

template <size_t kCount, typename Enum>
const char* NameIn(const char* const (&names)[kCount], Enum value) {
  return names[static_cast<size_t>(value)];
}

nlohmann::ordered_json FormatJson(const NumberFormat& format) {
  if (!format.present()) return nullptr;
  return {{"kind", NameIn(kKinds, format.kind)},
          {"bits", format.bits},
          {"exponent_bits", format.exponent_bits},
          {"mantissa_bits", format.mantissa_bits},
          {"special", NameIn(kSpecials, format.special)}};
}

nlohmann::ordered_json SpecJson(const QuantSpec& spec) {
  return {{"weight", FormatJson(spec.weight)},
          {"scale", FormatJson(spec.scale)},
          {"scale_block_n", spec.scale_block_n},
          {"scale_block_k", spec.scale_block_k},
          {"zero_point", NameIn(kZeroPoints, spec.zero_point)},
          {"secondary_scale", NameIn(kSecondaryScales, spec.secondary_scale)},
          {"has_group_index", spec.has_group_index},
          {"bias", FormatJson(spec.bias)},
          {"activation", FormatJson(spec.activation)},
          {"activation_scale", NameIn(kActivationScales, spec.activation_scale)},
          {"activation_group", spec.activation_group}};
}

nlohmann::ordered_json EncodingJson(const ActivationEncoding& encoding) {
  if (!encoding.present()) return nullptr;
  return {{"format", FormatJson(encoding.format)},
          {"scale", NameIn(kActivationScales, encoding.scale)},
          {"group", encoding.group},
          {"zero_points", encoding.zero_points},
          {"group_scale", FormatJson(encoding.group_scale)}};
}

}  // namespace

nlohmann::ordered_json LayerJson(const StandardTensor& tensor) {
  return {{"spec", SpecJson(tensor.spec)},
          {"experts", tensor.shape.experts},
          {"n", tensor.shape.n},
          {"k", tensor.shape.k},
          {"scale_columns", tensor.scale_columns},
          {"gate_up_interleaved", tensor.gate_up_interleaved},
          {"has_input_scale", tensor.has_input_scale},
          {"encoding", EncodingJson(tensor.encoding)}};
}

std::string FormatName(const NumberFormat& format, const std::string& absent) {
  if (!format.present()) return absent;
  if (format == kFloat32) return "float32";
  if (format == kFloat16) return "float16";
  if (format == kBFloat16) return "bfloat16";
  if (format.kind == NumberKind::kInteger) return absl::StrCat("int", format.bits);
  return absl::StrCat("e", format.exponent_bits, "m", format.mantissa_bits);
}

}  // namespace gemmd::gemmctl
