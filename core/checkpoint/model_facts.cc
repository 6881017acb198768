#include "core/checkpoint/model_facts.h"

#include <algorithm>
#include <initializer_list>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/checkpoint/errors.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

constexpr int64_t kMostCounted = 1 << 16;  // experts, layers
constexpr int64_t kLargestSize = 1 << 30;  // of a row or column

bool IsExpertCount(const std::string& key) {
  static const auto* const kKeys =
      new std::set<std::string>{"num_experts",     "num_local_experts",  "n_routed_experts",
                                "moe_num_experts", "num_routed_experts", "num_moe_experts"};
  return kKeys->count(key) > 0;
}

// 0 where there are none: models without experts write 0 or null.
absl::StatusOr<int64_t> CountOf(const std::string& key, const Json& value) {
  if (value.is_null()) return 0;
  if (!IsIntegerIn(value, 0, kMostCounted)) return WrongField(key, IntegersText(0, kMostCounted), value);
  return value.get<int64_t>();
}

absl::Status AddExpertCounts(const std::string& key, const Json& value, ModelFacts& facts) {
  const bool is_list = value.is_array();
  const Json one = Json::array({value});
  int64_t sum = 0;
  for (const Json& element : is_list ? value : one) {
    GEMMD_ASSIGN_OR_RETURN(const int64_t count, CountOf(key, element));
    if (count > 0) facts.expert_counts.push_back({key, count});
    sum += count;
  }
  if (is_list && sum > 0) facts.expert_counts.push_back({absl::StrCat("sum of ", key), sum});
  return absl::OkStatus();
}

bool IsTrue(const Json& object, const char* key) {
  const Json* field = FindField(object, {key});
  return field != nullptr && field->is_boolean() && field->get<bool>();
}

absl::Status AddSharing(const Json& object, const std::string& path, ModelFacts& facts) {
  facts.key_is_value |= IsTrue(object, "attention_k_eq_v");
  facts.cross_layer_kv |= IsTrue(object, "use_cla");
  const Json* layers = FindField(object, {"num_hidden_layers"});
  const Json* shared = FindField(object, {"num_kv_shared_layers"});
  if (layers == nullptr || shared == nullptr) return absl::OkStatus();
  GEMMD_ASSIGN_OR_RETURN(const int64_t all, CountOf(path + "num_hidden_layers", *layers));
  GEMMD_ASSIGN_OR_RETURN(const int64_t without, CountOf(path + "num_kv_shared_layers", *shared));
  if (without > 0 && without < all) facts.first_shared_kv_layer = all - without;
  return absl::OkStatus();
}

// Keys of the part of a config that is about the language model.
const std::set<std::string>& TextParts() {
  static const auto* const kParts =
      new std::set<std::string>{"text_config", "llm_config", "language_config", "thinker_config"};
  return *kParts;
}

// Whether the object at `path` is about the language model: the config as a whole, or its part for text.
bool IsAboutText(const std::string& path) {
  const std::vector<std::string> objects = absl::StrSplit(path, '.');
  return std::all_of(objects.begin(), objects.end(),
                     [](const std::string& object) { return object.empty() || TextParts().count(object) > 0; });
}

// Whether block_configs says of a part of a layer that it is left out.
absl::StatusOr<bool> IsLeftOut(const Json& block, const std::string& path, const char* part) {
  const Json* found = FindField(block, {part});
  if (found == nullptr) return false;
  if (!found->is_object()) return WrongField(absl::StrCat(path, ".", part), "an object", *found);
  return IsTrue(*found, "no_op");
}

absl::StatusOr<std::set<int64_t>> EmptyLayers(const Json& object, const std::string& path) {
  std::set<int64_t> empty;
  const Json* blocks = FindField(object, {"block_configs"});
  if (blocks == nullptr) return empty;
  if (!blocks->is_array()) return WrongField(path + "block_configs", "a list of objects", *blocks);
  for (size_t i = 0; i < blocks->size(); ++i) {
    const Json& block = (*blocks)[i];
    const std::string at = absl::StrCat(path, "block_configs[", i, "]");
    if (!block.is_object()) return WrongField(at, "an object", block);
    GEMMD_ASSIGN_OR_RETURN(const bool no_attention, IsLeftOut(block, at, "attention"));
    GEMMD_ASSIGN_OR_RETURN(const bool no_ffn, IsLeftOut(block, at, "ffn"));
    if (no_attention && no_ffn) empty.insert(static_cast<int64_t>(i));
  }
  return empty;
}

// "full_attention" or "linear_attention", "mamba" or "hybrid", for each layer.
void AddLayerTypes(const Json& object, const std::string& path, ModelFacts& facts) {
  if (!IsAboutText(path) || !facts.layer_types.empty()) return;
  const Json* types = FindField(object, {"layer_types", "layers_block_type"});
  if (types == nullptr || !types->is_array()) return;
  for (const Json& type : *types) facts.layer_types.push_back(Shown(type));
}

absl::Status AddLayerCount(const Json& object, const std::string& path, ModelFacts& facts) {
  const bool shared = FindField(object, {"num_hidden_groups"}) != nullptr;
  if (!IsAboutText(path)) return absl::OkStatus();
  AddLayerTypes(object, path, facts);
  facts.leaves_parts_out |= FindField(object, {"block_configs"}) != nullptr;
  GEMMD_ASSIGN_OR_RETURN(const std::set<int64_t> empty, EmptyLayers(object, path));
  if (shared) return absl::OkStatus();
  // Where each layer has two attentions, num_hidden_layers counts these and num_layers the layers.
  for (const char* name : {"num_hidden_layers", "num_layers"}) {
    const Json* layers = FindField(object, {name});
    if (layers == nullptr) return absl::OkStatus();
    const std::string key = path + name;
    GEMMD_ASSIGN_OR_RETURN(const int64_t count, CountOf(key, *layers));
    if (count > 0) facts.layer_counts.push_back({key, count, empty});
  }
  return absl::OkStatus();
}

// An extent of the model, or one for each of its layers.
absl::Status AddSizes(const Json& object, const std::string& path,
                      std::initializer_list<const char*> names, std::vector<int64_t>& sizes) {
  for (const char* name : names) {
    const Json* field = FindField(object, {name});
    if (field == nullptr) continue;
    const Json one = Json::array({*field});
    for (const Json& size : field->is_array() ? *field : one) {
      if (!IsIntegerIn(size, 0, kLargestSize)) {
        return WrongField(path + name, IntegersText(0, kLargestSize), *field);
      }
      sizes.push_back(size.get<int64_t>());
    }
  }
  return absl::OkStatus();
}

// Which model it is, and the extents of its matrices.
absl::Status AddModel(const Json& object, const std::string& path, ModelFacts& facts) {
  if (!IsAboutText(path)) return absl::OkStatus();
  GEMMD_ASSIGN_OR_RETURN(const std::string type, NameField(object, {"model_type"}, ""));
  if (!type.empty()) facts.model_types.push_back(type);
  const auto architectures = StringsField(object, {"architectures"});
  if (!architectures.ok()) return architectures.status();
  facts.architectures.insert(facts.architectures.end(), architectures->begin(),
                             architectures->end());
  GEMMD_RETURN_IF_ERROR(AddSizes(object, path, {"hidden_size"}, facts.hidden_sizes));
  GEMMD_RETURN_IF_ERROR(AddSizes(object, path, {"intermediate_size"}, facts.mlp_sizes));
  return AddSizes(object, path, {"moe_intermediate_size", "expert_intermediate_size"},
                  facts.expert_sizes);
}

// What is looked into or compared must be of its type where it counts.
absl::Status CheckTypes(const Json& object, const std::string& path) {
  if (!IsAboutText(path)) return absl::OkStatus();
  const Json* type = FindField(object, {"model_type"});
  if (type != nullptr && !type->is_string()) return WrongField(path + "model_type", "a string", *type);
  for (const std::string& part : TextParts()) {
    const Json* found = FindField(object, {part.c_str()});
    if (found != nullptr && !found->is_object()) return WrongField(path + part, "an object", *found);
  }
  return absl::OkStatus();
}

// `path` is empty or ends in a dot.
absl::Status Walk(const Json& object, const std::string& path, ModelFacts& facts) {
  GEMMD_RETURN_IF_ERROR(CheckTypes(object, path));
  GEMMD_RETURN_IF_ERROR(AddModel(object, path, facts));
  GEMMD_RETURN_IF_ERROR(AddSharing(object, path, facts));
  GEMMD_RETURN_IF_ERROR(AddLayerCount(object, path, facts));
  for (const auto& [key, value] : object.items()) {
    if (key == "quantization_config" || key == "compression_config") continue;
    if (IsExpertCount(key)) GEMMD_RETURN_IF_ERROR(AddExpertCounts(path + key, value, facts));
    if (value.is_object()) GEMMD_RETURN_IF_ERROR(Walk(value, absl::StrCat(path, key, "."), facts));
  }
  return absl::OkStatus();
}

// ---- quantization ----

struct QuantizationPlace {
  std::string key;  // "text_config.quantization_config"
  const Json* config = nullptr;
};

// Of one object, not of those in it. `path` is empty or ends in a dot.
absl::StatusOr<QuantizationPlace> PlaceIn(const Json& object, const std::string& path) {
  for (const char* name : {"quantization_config", "compression_config"}) {
    const Json* const found = FindField(object, {name});
    if (found == nullptr) continue;
    const std::string key = path + name;
    if (!found->is_object()) return WrongField(key, "an object", *found);
    if (!found->empty()) return QuantizationPlace{key, found};
  }
  return QuantizationPlace{};
}

// Whatever the order of their keys.
bool SaySame(const Json& a, const Json& b) { return JsonTable(a) == JsonTable(b); }

// Looks through `object` and its parts for text; `place` is what was found before.
absl::Status FindPlace(const Json& object, const std::string& path, QuantizationPlace& place) {
  GEMMD_ASSIGN_OR_RETURN(const QuantizationPlace here, PlaceIn(object, path));
  if (place.config == nullptr) {
    place = here;
  } else if (here.config != nullptr && !SaySame(*place.config, *here.config)) {
    return BadCheckpoint(absl::StrCat("\"", here.key, "\": expected the same as in \"", place.key, "\", ",
                                      Shown(*place.config), "; got ", Shown(*here.config)));
  }
  for (const std::string& part : TextParts()) {
    const Json* const nested = FindField(object, {part.c_str()});
    if (nested != nullptr) GEMMD_RETURN_IF_ERROR(FindPlace(*nested, absl::StrCat(path, part, "."), place));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelFacts> ReadModelFacts(const Json& config) {
  ModelFacts facts;
  GEMMD_RETURN_IF_ERROR(Walk(config, "", facts));
  return facts;
}

absl::StatusOr<const Json*> FindQuantizationConfig(const Json& config) {
  QuantizationPlace place;
  GEMMD_RETURN_IF_ERROR(FindPlace(config, "", place));
  return place.config;
}

absl::Status CheckExpertCount(const ModelFacts& facts, const std::string& module, int64_t count) {
  if (facts.expert_counts.empty()) return absl::OkStatus();
  const bool named = std::any_of(facts.expert_counts.begin(), facts.expert_counts.end(),
                                 [&](const auto& promised) { return promised.count == count; });
  if (named) return absl::OkStatus();
  const auto append = [](std::string* out, const ModelFacts::ExpertCount& promised) {
    absl::StrAppend(out, promised.count, " (", promised.key, ")");
  };
  return BadCheckpoint(absl::StrCat(
      "module ", module, ": expected experts as config.json counts them, ",
      absl::StrJoin(facts.expert_counts, " or ", append), "; got ", count, ", 0 to ", count - 1));
}

}  // namespace gemmd
