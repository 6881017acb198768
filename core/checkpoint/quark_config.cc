#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/module_rules.h"
#include "core/checkpoint/quark.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

absl::Status Unsupported(absl::string_view what) {
  return UnsupportedFormat(absl::StrCat("Quark ", what, " is not read"));
}

// Names as Quark and vLLM match them: shell patterns, and regular expressions behind "re:".
absl::StatusOr<bool> Matches(const char* key, const std::string& pattern,
                             const std::string& module) {
  constexpr char kRegex[] = "re:";
  if (!absl::StartsWith(pattern, kRegex)) return ShellMatch(pattern, module);
  const auto matches = PythonMatch(pattern.substr(3), module);
  if (!matches.ok()) return Annotate(matches.status(), absl::StrCat("\"", key, "\""));
  return *matches;
}

absl::Status ParseBlock(const Json& spec, QuarkSpec& to) {
  GEMMD_ASSIGN_OR_RETURN(std::tie(to.block_n, to.block_k), PairField(spec, {"block_size"}));
  return absl::OkStatus();
}

absl::StatusOr<QuarkSpec> ParseSpec(const Json& spec, const char* what) {
  if (!spec.is_object()) return WrongField(what, "an object", spec);
  QuarkSpec to;
  GEMMD_ASSIGN_OR_RETURN(to.dtype, NameField(spec, {"dtype"}, ""));
  GEMMD_ASSIGN_OR_RETURN(to.scheme, NameField(spec, {"qscheme"}, "per_tensor"));
  GEMMD_ASSIGN_OR_RETURN(to.scale_format, NameField(spec, {"scale_format"}, ""));
  GEMMD_ASSIGN_OR_RETURN(to.axis, IntegerField(spec, {"ch_axis"}, -2));
  GEMMD_ASSIGN_OR_RETURN(to.group, IntegerField(spec, {"group_size"}, 0));
  GEMMD_ASSIGN_OR_RETURN(to.symmetric, BoolField(spec, {"symmetric"}, true));
  GEMMD_ASSIGN_OR_RETURN(to.dynamic, BoolField(spec, {"is_dynamic"}, false));
  GEMMD_ASSIGN_OR_RETURN(const std::string zero_points,
                         NameField(spec, {"zero_point_type"}, "int32"));
  if (zero_points != "int32") return Unsupported(absl::StrCat("zero_point_type ", zero_points));
  if (to.scale_format == "e5m3") return Unsupported("scale_format e5m3");
  if (to.scheme == "per_block") GEMMD_RETURN_IF_ERROR(ParseBlock(spec, to));
  if (to.scheme == "per_group") {
    GEMMD_RETURN_IF_ERROR(CheckGroupSize(to.group, " with qscheme per_group"));
  }
  return to;
}

// A spec, or the two of NVFP4: e2m1 in groups of 16 whose scales are e4m3 below one factor.
absl::StatusOr<QuarkSpec> ParseLevels(const Json& levels, const char* what, bool& below_factor) {
  below_factor = false;
  if (!levels.is_array()) return ParseSpec(levels, what);
  if (levels.size() == 1) return ParseSpec(levels[0], what);
  if (levels.size() != 2) return Unsupported(absl::StrCat(what, " of more than two levels"));
  GEMMD_ASSIGN_OR_RETURN(const QuarkSpec codes, ParseSpec(levels[0], what));
  GEMMD_ASSIGN_OR_RETURN(const QuarkSpec scales, ParseSpec(levels[1], what));
  GEMMD_ASSIGN_OR_RETURN(const bool of_scales, BoolField(levels[1], {"is_scale_quant"}, false));
  below_factor = of_scales && codes.scheme == "per_group" && scales.dtype == "fp8_e4m3" &&
                 scales.scheme == "per_tensor";
  if (below_factor) return codes;
  return Unsupported(absl::StrCat(what, " of two levels ", codes.dtype, " and ", scales.dtype));
}

// The entry of layer_quant_config that matches first, then that of the class, then the global one.
absl::StatusOr<const Json*> EntryOf(const Json& config, const std::string& module) {
  GEMMD_ASSIGN_OR_RETURN(const Json* const layers, ObjectField(config, {"layer_quant_config"}));
  if (layers != nullptr) {
    for (const auto& [pattern, entry] : layers->items()) {
      GEMMD_ASSIGN_OR_RETURN(const bool matches, Matches("layer_quant_config", pattern, module));
      if (!matches) continue;
      if (!entry.is_object())
        return WrongField(absl::StrCat("layer_quant_config.", pattern), "an object", entry);
      return &entry;
    }
  }
  GEMMD_ASSIGN_OR_RETURN(const Json* const types, ObjectField(config, {"layer_type_quant_config"}));
  if (types != nullptr) {
    GEMMD_ASSIGN_OR_RETURN(const Json* const linear, ObjectField(*types, {"Linear"}));
    if (linear != nullptr) return linear;
  }
  return ObjectField(config, {"global_quant_config"});
}

absl::Status ParseExport(const Json& config, QuarkScheme& scheme) {
  GEMMD_ASSIGN_OR_RETURN(const Json* const options, ObjectField(config, {"export"}));
  if (options == nullptr) return absl::OkStatus();
  GEMMD_ASSIGN_OR_RETURN(const std::string pack, NameField(*options, {"pack_method"}, "reorder"));
  GEMMD_ASSIGN_OR_RETURN(const std::string format,
                         NameField(*options, {"weight_format"}, "real_quantized"));
  if (format != "real_quantized") return Unsupported(absl::StrCat("weight_format ", format));
  if (pack != "reorder" && pack != "order") return Unsupported(absl::StrCat("pack_method ", pack));
  GEMMD_ASSIGN_OR_RETURN(const std::vector<std::string> cache,
                         StringsField(*options, {"kv_cache_group"}));
  scheme.reordered = pack == "reorder";
  scheme.has_cache_scales = !cache.empty();
  return absl::OkStatus();
}

}  // namespace

NumberFormat QuarkFormat(const std::string& dtype) {
  if (dtype == "fp8_e4m3") return kFloat8E4M3;
  if (dtype == "fp8_e5m2") return kFloat8E5M2;
  if (dtype == "fp4") return kFloat4E2M1;
  if (dtype == "fp6_e2m3") return FloatFormat(2, 3);
  if (dtype == "fp6_e3m2") return FloatFormat(3, 2);
  if (dtype == "int8" || dtype == "uint8") return IntegerFormat(8);
  if (dtype == "int4" || dtype == "uint4") return IntegerFormat(4);
  if (dtype == "int3") return IntegerFormat(3);
  if (dtype == "int2") return IntegerFormat(2);
  return kNoFormat;
}

absl::StatusOr<std::optional<QuarkScheme>> QuarkSchemeOf(const Json& config,
                                                         const std::string& module) {
  GEMMD_ASSIGN_OR_RETURN(const std::vector<std::string> excluded,
                         StringsField(config, {"exclude"}));
  for (const std::string& pattern : excluded) {
    GEMMD_ASSIGN_OR_RETURN(const bool matches, Matches("exclude", pattern, module));
    if (matches) return std::nullopt;
  }
  GEMMD_ASSIGN_OR_RETURN(const Json* const entry, EntryOf(config, module));
  const Json* weight = entry == nullptr ? nullptr : FindField(*entry, {"weight"});
  if (weight == nullptr) return std::nullopt;
  QuarkScheme scheme;
  GEMMD_RETURN_IF_ERROR(ParseExport(config, scheme));
  GEMMD_ASSIGN_OR_RETURN(scheme.weight, ParseLevels(*weight, "weight", scheme.scale_below_factor));
  if (scheme.weight.dynamic) return Unsupported("weights with is_dynamic");
  if (FindField(*entry, {"bias"}) != nullptr) return Unsupported("quantized bias");
  const bool cache = scheme.has_cache_scales;  // output_tensors are the cache's
  if (FindField(*entry, {"output_tensors"}) != nullptr && !cache) {
    return Unsupported("output_tensors without kv_cache_group");
  }
  const Json* input = FindField(*entry, {"input_tensors"});
  if (input == nullptr) return scheme;
  GEMMD_ASSIGN_OR_RETURN(scheme.input,
                         ParseLevels(*input, "input_tensors", scheme.input_below_factor));
  return scheme;
}

}  // namespace gemmd
