#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/modelopt.h"
#include "core/checkpoint/module_rules.h"

namespace gemmd {
namespace {

constexpr char kMethod[] = "modelopt";
// Set in a merged config whose two sources contradict each other: a module is named only later.
constexpr char kContradiction[] = "gemmd: contradiction";
// model_type of config.json, in a merged config.
constexpr char kModelType[] = "gemmd: model_type";

// Adds the keys of `from` that `to` lacks.
void AddMissing(const Json& from, Json& to) {
  for (const auto& [name, value] : from.items()) {
    if (FindField(to, {name.c_str()}) == nullptr) to[name] = value;
  }
}

// `config` with the keys of its "quantization" object, in which hf_quant_config.json and some
// config.json keep them.
absl::StatusOr<Json> Flat(const Json& config) {
  Json flat = config.is_null() ? Json::object() : config;
  GEMMD_ASSIGN_OR_RETURN(const Json* const nested, ObjectField(flat, {"quantization"}));
  if (nested == nullptr) return flat;
  const Json keys = *nested;
  flat.erase("quantization");
  AddMissing(keys, flat);
  return flat;
}

absl::StatusOr<Json> FlatWithAlgorithm(const Json& config, std::string& algorithm) {
  GEMMD_ASSIGN_OR_RETURN(Json flat, Flat(config));
  GEMMD_ASSIGN_OR_RETURN(algorithm, NameField(flat, {"quant_algo"}, ""));
  return flat;
}

absl::StatusOr<bool> IsExcluded(const Json& config, const std::string& module) {
  for (const char* key : {"ignore", "exclude_modules"}) {
    GEMMD_ASSIGN_OR_RETURN(const std::vector<std::string> patterns, StringsField(config, {key}));
    for (const std::string& pattern : patterns) {
      if (ShellMatch(pattern, module)) return true;
    }
  }
  return false;
}

// The name that an entry of a stack of experts has: that of the module whose parameter it is.
std::string ExpertsOf(const std::string& module) {
  const size_t dot = module.rfind('.');
  const std::string parent = dot == std::string::npos ? "" : module.substr(0, dot);
  return absl::EndsWith(parent, "experts") ? parent : "";
}

// The entry of quantized_layers for `module`, or nullptr.
absl::StatusOr<const Json*> LayerEntry(const Json& config, const std::string& module) {
  GEMMD_ASSIGN_OR_RETURN(const Json* const layers, ObjectField(config, {"quantized_layers"}));
  if (layers == nullptr) {
    return WrongField("quantized_layers", "an object with quant_algo MIXED_PRECISION", nullptr);
  }
  const auto exact = layers->find(module);
  if (exact != layers->end()) return &*exact;
  const auto experts = layers->find(ExpertsOf(module));
  if (experts != layers->end()) return &*experts;
  for (const auto& [pattern, entry] : layers->items()) {
    if (ShellMatch(pattern, module)) return &entry;
  }
  return nullptr;
}

absl::StatusOr<ModelOptScheme> ParseScheme(const Json& entry) {
  ModelOptScheme scheme;
  GEMMD_ASSIGN_OR_RETURN(scheme.algorithm, NameField(entry, {"quant_algo"}, ""));
  GEMMD_ASSIGN_OR_RETURN(scheme.group_size, IntegerField(entry, {"group_size"}, 0));
  GEMMD_ASSIGN_OR_RETURN(const bool zero_point, BoolField(entry, {"has_zero_point"}, false));
  if (zero_point) return UnsupportedFormat("ModelOpt with has_zero_point true is not read");
  if (scheme.group_size != 0) GEMMD_RETURN_IF_ERROR(CheckGroupSize(scheme.group_size, ""));
  return scheme;
}

}  // namespace

int64_t ModelOptNvfp4Block(const ModelOptScheme& scheme) {
  return scheme.algorithm == "w4a8_nvfp4_fp8" && scheme.group_size != 16 ? 32 : 16;
}

bool IsModelOptConfig(const Json& config) {
  const auto method = NameField(config, {"quant_method"}, "");
  return method.ok() && (*method == kMethod || *method == "modelopt_fp4" ||
                         *method == "modelopt_mixed" || *method == "modelopt_mxfp8");
}

absl::StatusOr<Json> MergeModelOptConfig(const Json& config, const std::string& config_name,
                                         const Json& file, const std::string& file_name,
                                         const std::string& model_type) {
  std::string algorithm;
  std::string other_algorithm;
  const auto own = FlatWithAlgorithm(config, algorithm);
  if (!own.ok()) return Annotate(own.status(), config_name);
  const auto other = FlatWithAlgorithm(file, other_algorithm);
  if (!other.ok()) return Annotate(other.status(), file_name);
  Json merged = *own;
  AddMissing(*other, merged);
  merged.erase(kContradiction);
  merged[kModelType] = model_type;
  if (!algorithm.empty() && !other_algorithm.empty() && algorithm != other_algorithm) {
    merged[kContradiction] = absl::StrCat("quant_algo is \"", algorithm, "\" in config.json and \"",
                                          other_algorithm, "\" in hf_quant_config.json");
  }
  merged["quant_method"] = kMethod;
  return merged;
}

absl::StatusOr<std::optional<ModelOptScheme>> ModelOptSchemeOf(const Json& config,
                                                               const std::string& module) {
  const Json* contradiction = FindField(config, {kContradiction});
  if (contradiction != nullptr) {
    return BadCheckpoint(contradiction->get_ref<const std::string&>());
  }
  GEMMD_ASSIGN_OR_RETURN(const bool excluded, IsExcluded(config, module));
  if (excluded) return std::nullopt;
  GEMMD_ASSIGN_OR_RETURN(const std::string model_type, NameField(config, {kModelType}, ""));
  GEMMD_ASSIGN_OR_RETURN(ModelOptScheme scheme, ParseScheme(config));
  scheme.model_type = model_type;
  if (scheme.algorithm.empty()) return std::nullopt;
  if (scheme.algorithm != "mixed_precision") return scheme;
  GEMMD_ASSIGN_OR_RETURN(const Json* const entry, LayerEntry(config, module));
  if (entry == nullptr) return std::nullopt;
  if (!entry->is_object())
    return WrongField(absl::StrCat("quantized_layers.", module), "an object", *entry);
  GEMMD_ASSIGN_OR_RETURN(scheme, ParseScheme(*entry));
  scheme.model_type = model_type;
  return scheme;
}

}  // namespace gemmd
