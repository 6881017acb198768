#include "core/checkpoint/model_facts.h"

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/checkpoint/errors.h"

namespace gemmd {
namespace {

constexpr int64_t kMostExperts = 1 << 16;

bool IsExpertCount(const std::string& key) {
  static const auto* const kKeys =
      new std::set<std::string>{"num_experts",     "num_local_experts",  "n_routed_experts",
                                "moe_num_experts", "num_routed_experts", "num_moe_experts"};
  return kKeys->count(key) > 0;
}

// A count of at least 1, or nullopt: models without experts write 0 or null.
std::optional<int64_t> CountOf(const Json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const auto count = value.get<uint64_t>();
  if (count < 1 || count > kMostExperts) return std::nullopt;
  return static_cast<int64_t>(count);
}

void AddExpertCounts(const std::string& key, const Json& value, ModelFacts& facts) {
  if (const auto count = CountOf(value)) facts.expert_counts.push_back({key, *count});
  if (!value.is_array()) return;
  int64_t sum = 0;
  for (const Json& element : value) {
    const auto count = CountOf(element);
    if (!count) continue;
    facts.expert_counts.push_back({key, *count});
    sum += *count;
  }
  if (sum > 0) facts.expert_counts.push_back({absl::StrCat("sum of ", key), sum});
}

bool IsTrue(const Json& object, const char* key) {
  const Json* field = FindField(object, {key});
  return field != nullptr && field->is_boolean() && field->get<bool>();
}

void AddSharing(const Json& object, ModelFacts& facts) {
  facts.key_is_value |= IsTrue(object, "attention_k_eq_v");
  facts.cross_layer_kv |= IsTrue(object, "use_cla");
  const Json* layers = FindField(object, {"num_hidden_layers"});
  const Json* shared = FindField(object, {"num_kv_shared_layers"});
  if (layers == nullptr || shared == nullptr) return;
  const auto all = CountOf(*layers);
  const auto without = CountOf(*shared);
  if (all && without && *without < *all) facts.first_shared_kv_layer = *all - *without;
}

// `path` is empty or ends in a dot.
void Walk(const Json& object, const std::string& path, ModelFacts& facts) {
  AddSharing(object, facts);
  for (const auto& [key, value] : object.items()) {
    if (key == "quantization_config" || key == "compression_config") continue;
    if (IsExpertCount(key)) AddExpertCounts(path + key, value, facts);
    if (value.is_object()) Walk(value, absl::StrCat(path, key, "."), facts);
  }
}

}  // namespace

ModelFacts ReadModelFacts(const Json& config) {
  ModelFacts facts;
  Walk(config, "", facts);
  return facts;
}

absl::Status CheckExpertCount(const ModelFacts& facts, const std::string& experts, int64_t count) {
  if (facts.expert_counts.empty()) return absl::OkStatus();
  if (experts != "experts" && !absl::EndsWith(experts, ".experts")) return absl::OkStatus();
  const bool named = std::any_of(facts.expert_counts.begin(), facts.expert_counts.end(),
                                 [&](const auto& promised) { return promised.count == count; });
  if (named) return absl::OkStatus();
  const auto append = [](std::string* out, const ModelFacts::ExpertCount& promised) {
    absl::StrAppend(out, promised.count, " (", promised.key, ")");
  };
  return BadCheckpoint(absl::StrCat(
      "module ", experts, ": expected experts as config.json counts them, ",
      absl::StrJoin(facts.expert_counts, " or ", append), "; got ", count, ", 0 to ", count - 1));
}

}  // namespace gemmd
