// What    AutoRound's own quant_method. packing_format says whose tensors these are; the config is
//         put into the words of that exporter, whose reader does the rest.
// Source  https://github.com/intel/auto-round; README.md.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/checkpoint/activation_parts.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/module_rules.h"
#include "core/checkpoint/reader.h"
#include "core/checkpoint/reader_parts.h"

namespace gemmd {
namespace auto_round {
namespace {

constexpr int64_t kUnquantizedBits = 16;

// block_name_to_quantize: names of blocks, as one string with commas or as a list. A block is
// quantized with everything below it.
absl::StatusOr<bool> IsInBlocks(const Json& config, const std::string& module) {
  const Json* field = FindField(config, {"block_name_to_quantize"});
  if (field == nullptr) return module != "lm_head";
  std::vector<std::string> blocks;
  if (field->is_string()) {
    blocks = absl::StrSplit(field->get<std::string>(), ',', absl::SkipWhitespace());
  } else {
    GEMMD_ASSIGN_OR_RETURN(blocks, StringsField(config, {"block_name_to_quantize"}));
  }
  for (const std::string& block : blocks) {
    absl::string_view rest = module;
    if (absl::ConsumePrefix(&rest, absl::StripAsciiWhitespace(block)) &&
        (rest.empty() || rest[0] == '.')) {
      return true;
    }
  }
  return false;
}

// The entry of extra_config for `module`: its name, or else the first regex found in it.
absl::StatusOr<const Json*> ExtraConfig(const Json& config, const std::string& module) {
  GEMMD_ASSIGN_OR_RETURN(const Json* const extra, ObjectField(config, {"extra_config"}));
  if (extra == nullptr) return nullptr;
  const auto exact = extra->find(module);
  if (exact != extra->end()) return &*exact;
  for (const auto& [pattern, entry] : extra->items()) {
    if (pattern.find_first_of("*+?^$[](){}|\\") == std::string::npos) continue;
    const auto found = PythonMatch(absl::StrCat(".*(?:", pattern, ")"), module);
    if (!found.ok()) return Annotate(found.status(), "\"extra_config\"");
    if (*found) return &entry;
  }
  return nullptr;
}

absl::StatusOr<int64_t> BitsField(const Json& config, const char* name, int64_t fallback) {
  GEMMD_ASSIGN_OR_RETURN(const int64_t bits, IntegerField(config, {name}, fallback));
  if (bits >= 1 && bits <= 64) return bits;
  return WrongField(name, "1 to 64 bits", bits);
}

// The config as it holds for `module`; nullopt when that leaves it unquantized.
absl::StatusOr<std::optional<Json>> ConfigOf(const Json& config, const std::string& module) {
  GEMMD_ASSIGN_OR_RETURN(const Json* const extra, ExtraConfig(config, module));
  GEMMD_ASSIGN_OR_RETURN(const bool in_blocks, IsInBlocks(config, module));
  if (extra == nullptr && !in_blocks) return std::nullopt;
  GEMMD_ASSIGN_OR_RETURN(const std::vector<std::string> skipped,
                         StringsField(config, {"modules_to_not_convert"}));
  GEMMD_ASSIGN_OR_RETURN(const bool is_skipped, SkippedByPatterns(skipped, module));
  if (is_skipped) return std::nullopt;
  Json own = config;
  if (extra != nullptr) {
    if (!extra->is_object())
      return WrongField(absl::StrCat("extra_config.", module), "an object", *extra);
    for (const auto& [name, value] : extra->items()) {
      if (!value.is_null()) own[name] = value;
    }
  }
  GEMMD_ASSIGN_OR_RETURN(const int64_t bits, BitsField(own, "bits", kUnquantizedBits));
  if (bits >= kUnquantizedBits) return std::nullopt;
  return own;
}

absl::Status RequireInteger(const Json& config, const std::string& packing) {
  GEMMD_ASSIGN_OR_RETURN(const std::string type, NameField(config, {"data_type"}, "int"));
  GEMMD_ASSIGN_OR_RETURN(const int64_t act_bits, BitsField(config, "act_bits", 16));
  if ((type == "int" || type == "int_sym" || type == "int_asym") && act_bits >= 16) {
    return absl::OkStatus();
  }
  return UnsupportedFormat(absl::StrCat("AutoRound packing_format \"", packing,
                                        "\" with data_type \"", type, "\" and act_bits ", act_bits,
                                        " is not read: int with 16-bit activations is"));
}

void CopyFields(const Json& from, std::initializer_list<const char*> names, Json& to) {
  for (const char* name : names) {
    const Json* field = FindField(from, {name});
    if (field != nullptr) to[name] = *field;
  }
}

Json AsGptq(const Json& config, const char* version) {
  Json gptq = {{"quant_method", "gptq"}, {"checkpoint_format", version}, {"lm_head", true}};
  CopyFields(config, {"bits", "group_size", "sym", "desc_act"}, gptq);
  return gptq;
}

absl::StatusOr<StandardTensor> ReadAsGptq(const Json& config, const std::string& packing,
                                          const char* version, const ReadingOptions& options,
                                          ModuleTensors& tensors) {
  GEMMD_RETURN_IF_ERROR(RequireInteger(config, packing));
  return GptqReader().read(AsGptq(config, version), options, tensors);
}

absl::StatusOr<StandardTensor> ReadAsAwq(const Json& config, const std::string& packing,
                                         const ReadingOptions& options, ModuleTensors& tensors) {
  GEMMD_RETURN_IF_ERROR(RequireInteger(config, packing));
  GEMMD_ASSIGN_OR_RETURN(const bool symmetric, BoolField(config, {"sym"}, false));
  Json awq = {{"quant_method", "awq"}, {"version", "gemm"}, {"zero_point", !symmetric}};
  CopyFields(config, {"bits", "group_size"}, awq);
  return AwqReader().read(awq, options, tensors);
}

// mx_fp and nv_fp: tensors of compressed-tensors.
absl::StatusOr<StandardTensor> ReadAsCompressedTensors(const Json& config, const ReadingOptions& options,
                                                       ModuleTensors& tensors) {
  GEMMD_ASSIGN_OR_RETURN(const std::string type, NameField(config, {"data_type"}, ""));
  GEMMD_ASSIGN_OR_RETURN(const int64_t bits, IntegerField(config, {"bits"}, 0));
  GEMMD_ASSIGN_OR_RETURN(const int64_t act_bits, BitsField(config, "act_bits", 16));
  const bool is_mx = type == "mx_fp" || type == "mx_fp_rceil";
  const bool is_nv = type == "nv_fp" || type == "nv_fp4_with_static_gs";
  if (!(is_mx && (bits == 4 || bits == 8)) && !(is_nv && bits == 4)) {
    return UnsupportedFormat(
        absl::StrCat("AutoRound packing_format \"auto_round:llm_compressor\" "
                     "with data_type \"",
                     type, "\" and ", bits,
                     " bits is not read: mx_fp with 4 and 8 bits and nv_fp "
                     "with 4 are"));
  }
  Json weights = {{"num_bits", bits}, {"type", "float"}, {"symmetric", true}};
  weights["strategy"] = is_nv ? "tensor_group" : "group";
  CopyFields(config, {"group_size"}, weights);
  Json group = {{"targets", {"Linear"}}, {"weights", weights}};
  if (act_bits < 16) {
    Json inputs = weights;
    inputs["num_bits"] = act_bits;
    inputs["dynamic"] = is_nv ? Json("local") : Json(true);
    group["input_activations"] = inputs;
  }
  const char* format = is_nv       ? "nvfp4-pack-quantized"
                       : bits == 4 ? "mxfp4-pack-quantized"
                                   : "mxfp8-quantized";
  // It writes exponents as they are, which compressed-tensors does since this release.
  const Json compressed = {{"quant_method", "compressed-tensors"},
                           {"version", "0.14.0"},
                           {"format", format},
                           {"config_groups", {{"group_0", group}}}};
  return CompressedTensorsReader().read(compressed, options, tensors);
}

// With act_bits of 16 and more activations are not quantized, whatever else the config says of them.
absl::StatusOr<StandardTensor> ReadAsFp8(const Json& config, const ReadingOptions& options, ModuleTensors& tensors) {
  GEMMD_ASSIGN_OR_RETURN(const int64_t act_bits, BitsField(config, "act_bits", 8));
  const bool weights_only = act_bits >= kUnquantizedBits;
  Json fp8 = {{"quant_method", "fp8"}};
  CopyFields(config, {"fmt", "activation_scheme", "weight_block_size"}, fp8);
  const Json* group_size = FindField(config, {"group_size"});
  if (group_size != nullptr && group_size->is_array()) fp8["weight_block_size"] = *group_size;
  if (weights_only) {
    fp8["activation_scheme"] = "dynamic";  // which needs no tensors
  } else if (FindField(fp8, {"activation_scheme"}) == nullptr) {
    GEMMD_ASSIGN_OR_RETURN(const bool dynamic, BoolField(config, {"act_dynamic"}, false));
    fp8["activation_scheme"] = dynamic ? "dynamic" : "static";
  }
  GEMMD_ASSIGN_OR_RETURN(StandardTensor tensor, Fp8Reader().read(fp8, options, tensors));
  if (weights_only) SetNoActivation(tensor);
  return tensor;
}

// The version of GPTQ whose tensors these are, in its words; nullptr: of none. Zero points of "gptq" are stored minus one.
const char* GptqVersion(const std::string& packing) {
  if (packing == "auto_round" || packing == "auto_round:gptqmodel") return "gptq_v2";
  const bool is_first = packing == "auto_round:auto_gptq" || packing == "auto_round:gptq" || packing == "auto" ||
                        packing == "auto_round:auto";
  return is_first ? "gptq" : nullptr;
}

absl::StatusOr<StandardTensor> ReadPacking(const Json& config, const ReadingOptions& options,
                                           ModuleTensors& tensors) {
  GEMMD_ASSIGN_OR_RETURN(const std::string packing, NameField(config, {"packing_format"}, ""));
  if (const char* const version = GptqVersion(packing)) return ReadAsGptq(config, packing, version, options, tensors);
  if (packing == "auto_round:auto_awq" || packing == "auto_round:awq") {
    return ReadAsAwq(config, packing, options, tensors);
  }
  if (packing == "auto_round:llm_compressor") return ReadAsCompressedTensors(config, options, tensors);
  if (packing == "auto_round:fp8_static") return ReadAsFp8(config, options, tensors);
  return UnsupportedFormat(absl::StrCat(
      "AutoRound packing_format \"", packing,
      "\" is not read: auto_round, and with it gptqmodel, auto_gptq, gptq, auto_awq, awq, "
      "llm_compressor and fp8_static are"));
}

bool LooksQuantized(const ModuleTensors& tensors) {
  for (const char* key : {".qweight", ".weight_packed", ".weight_scale", ".weight_scale_inv"}) {
    if (tensors.Find(key) != nullptr) return true;
  }
  return false;
}

absl::StatusOr<StandardTensor> Read(const Json& config, const ReadingOptions& options, ModuleTensors& tensors) {
  GEMMD_ASSIGN_OR_RETURN(const std::optional<Json> own, ConfigOf(config, tensors.module()));
  GEMMD_RETURN_IF_ERROR(CheckAgreement(tensors, own.has_value(), LooksQuantized(tensors),
                                       "packed weight or a scale"));
  return ReadPacking(*own, options, tensors);
}

absl::StatusOr<std::string> Note(const Json& config, const ReadingOptions& options, ModuleTensors& tensors) {
  GEMMD_ASSIGN_OR_RETURN(const std::optional<Json> own, ConfigOf(config, tensors.module()));
  if (!own) return "";
  GEMMD_ASSIGN_OR_RETURN(const std::string packing, NameField(*own, {"packing_format"}, ""));
  const char* const version = GptqVersion(packing);
  if (version == nullptr) return "";
  return GptqReader().note(AsGptq(*own, version), options, tensors);
}

}  // namespace
}  // namespace auto_round

CheckpointReader AutoRoundReader() {
  return {
      "auto-round",
      {".qweight", ".qzeros", ".scales", ".weight_packed", ".weight_scale_inv", ".weight_scale"},
      &auto_round::Read,
      &auto_round::Note};
}

}  // namespace gemmd
