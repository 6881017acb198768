#include "core/checkpoint/model_parts.h"

#include <algorithm>
#include <array>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/model_facts.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

using Names = std::vector<std::string>;

constexpr char kExperts[] = "experts.";
constexpr absl::string_view kQkv = "qkv_proj";

struct FusedGroup {
  const char* name;
  Names parts;
  const char*
      alone;  // the part that models have without the others: no gate, keys and values made otherwise
};

const std::array<FusedGroup, 4>& FusedGroups() {
  static const auto* const kGroups = new std::array<FusedGroup, 4>{{
      {"qkv_proj", {"q_proj", "k_proj", "v_proj"}, "q_proj"},
      {"gate_up_proj", {"gate_proj", "up_proj"}, "up_proj"},
      {"w13", {"w1", "w3"}, "w1"},
      {"fused_qkv_a_proj", {"q_a_proj", "kv_a_proj_with_mqa"}, "kv_a_proj_with_mqa"},
  }};
  return *kGroups;
}

// Those of `group`'s parts that `names` has, or has not.
Names PartsOf(const FusedGroup& group, const std::set<std::string>& names, bool present) {
  Names parts;
  for (const std::string& part : group.parts) {
    if ((names.count(part) > 0) == present) parts.push_back(part);
  }
  return parts;
}

// Names below one prefix, with whole groups joined.
std::set<std::string> JoinGroups(std::set<std::string> names) {
  for (const FusedGroup& group : FusedGroups()) {
    if (names.count(group.name) > 0 || !PartsOf(group, names, false).empty()) continue;
    for (const std::string& part : group.parts) names.erase(part);
    names.insert(group.name);
  }
  return names;
}

using NamesByPrefix = std::map<std::string, std::set<std::string>>;

NamesByPrefix ByPrefix(const Names& modules) {
  NamesByPrefix groups;
  for (const std::string& module : modules) {
    const auto [prefix, name] = SplitModule(module);
    groups[prefix].insert(name);
  }
  return groups;
}

// Experts that are stored one by one, below one prefix: their names by number.
std::map<std::string, std::map<int64_t, std::set<std::string>>> ExpertsIn(
    const NamesByPrefix& groups) {
  std::map<std::string, std::map<int64_t, std::set<std::string>>> stacks;
  for (const auto& [prefix, names] : groups) {
    if (const auto expert = ExpertOf(prefix)) stacks[expert->first][expert->second] = names;
  }
  return stacks;
}

// Whether experts 0 to the last have the same names.
bool IsWholeStack(const std::map<int64_t, std::set<std::string>>& experts) {
  if (experts.rbegin()->first + 1 != static_cast<int64_t>(experts.size())) return false;
  return std::all_of(experts.begin(), experts.end(),
                     [&](const auto& one) { return one.second == experts.begin()->second; });
}

// ---- groups that are not whole ----

// Whether a part below `prefix` is among `wanted`, alone or in a stack of experts.
auto IsWanted(const std::string& prefix, const std::set<std::string>& wanted) {
  const auto expert = ExpertOf(prefix);
  return [prefix, stack = expert ? expert->first : prefix, &wanted](const std::string& part) {
    return wanted.count(prefix + part) > 0 || wanted.count(stack + part) > 0;
  };
}

// What a place in the model is for: its prefix with '*' for numbers.
std::string RoleOf(const std::string& prefix) {
  Names components = absl::StrSplit(prefix, '.');
  for (std::string& component : components) {
    int64_t number = 0;
    if (absl::SimpleAtoi(component, &number)) component.assign(1, '*');
  }
  return absl::StrJoin(components, ".");
}

// The number of the layer that `prefix` lies in, or nullopt.
std::optional<int64_t> LayerOf(const std::string& prefix) {
  std::optional<int64_t> layer;
  for (const absl::string_view component : absl::StrSplit(prefix, '.')) {
    int64_t number = 0;
    if (absl::SimpleAtoi(component, &number)) layer = number;
  }
  return layer;
}

// What the files hold: the modules below each prefix, and for each part in each role the modules that have it.
struct Stored {
  NamesByPrefix by_prefix;
  std::map<std::pair<std::string, std::string>, Names> by_role;

  bool Has(const std::string& prefix, const std::string& name) const {
    const auto found = by_prefix.find(prefix);
    return found != by_prefix.end() && found->second.count(name) > 0;
  }
};

Stored StoredParts(const CheckpointFiles& files) {
  Stored stored;
  for (const auto& [tensor, file] : files.index()) {
    const size_t dot = tensor.rfind('.');
    if (dot == std::string::npos) continue;
    const auto [prefix, name] = SplitModule(tensor.substr(0, dot));
    stored.by_prefix[prefix].insert(name);
  }
  for (const auto& [prefix, names] : stored.by_prefix) {
    for (const std::string& name : names) {
      stored.by_role[{RoleOf(prefix), name}].push_back(prefix + name);
    }
  }
  return stored;
}

struct Gap {
  std::string prefix;
  const FusedGroup& group;
  Names present;
  Names missing;
};

// Latent attention makes keys and values from another projection; some models have it in some layers only.
bool HasLatentKeys(const Gap& gap, const Stored& stored) {
  return gap.group.name == kQkv && stored.Has(gap.prefix, "kv_a_proj_with_mqa");
}

// Why an attention lacks keys or values that those of other layers have; empty: the config does not say.
std::string WhyWithout(const Gap& gap, const ModelFacts& facts) {
  if (gap.group.name != kQkv) return "";
  if (gap.missing == Names{"v_proj"}) {
    return facts.key_is_value ? "attention_k_eq_v of config.json" : "";
  }
  if (gap.missing != Names{"k_proj", "v_proj"}) return "";
  if (facts.cross_layer_kv) return "use_cla of config.json";
  const std::optional<int64_t> layer = LayerOf(gap.prefix);
  const bool shared =
      facts.first_shared_kv_layer && layer && *layer >= *facts.first_shared_kv_layer;
  return shared ? "num_kv_shared_layers of config.json" : "";
}

// Why `gap` stays open; empty: it is no gap but how models are made.
absl::StatusOr<std::string> Explain(const Gap& gap, const ModelFacts& facts, const Stored& stored) {
  for (const std::string& part : gap.missing) {
    if (stored.Has(gap.prefix, part)) return absl::StrCat(part, " is not quantized");
  }
  const bool alone = gap.present == Names{gap.group.alone};
  if (alone && HasLatentKeys(gap, stored)) return "";
  std::string why = WhyWithout(gap, facts);
  if (!why.empty()) return why;
  for (const std::string& part : gap.missing) {
    const auto others = stored.by_role.find({RoleOf(gap.prefix), part});
    if (others == stored.by_role.end()) continue;
    return BadCheckpoint(absl::StrCat("module ", gap.prefix, part, ": expected beside ",
                                      gap.present.front(), ", as ", others->second.size(),
                                      " other layers have it (", others->second.front(),
                                      "); found no tensors for it"));
  }
  return alone ? "" : absl::StrCat("the model has no ", absl::StrJoin(gap.missing, ", "));
}

}  // namespace

std::pair<std::string, std::string> SplitModule(const std::string& module) {
  const size_t dot = module.rfind('.');
  if (dot == std::string::npos) return {"", module};
  return {module.substr(0, dot + 1), module.substr(dot + 1)};
}

std::optional<std::pair<std::string, int64_t>> ExpertOf(const std::string& prefix) {
  if (prefix.empty()) return std::nullopt;
  const auto [parent, digits] = SplitModule(prefix.substr(0, prefix.size() - 1));
  int64_t expert = 0;
  if (!absl::EndsWith(parent, kExperts) || !absl::SimpleAtoi(digits, &expert) || expert < 0 ||
      absl::StrCat(expert) != digits) {
    return std::nullopt;
  }
  return std::pair(parent, expert);
}

Names FuseModules(const Names& modules) {
  NamesByPrefix groups = ByPrefix(modules);
  for (auto& [prefix, names] : groups) names = JoinGroups(std::move(names));
  for (const auto& [prefix, experts] : ExpertsIn(groups)) {
    if (!IsWholeStack(experts)) continue;
    groups[prefix].insert(experts.begin()->second.begin(), experts.begin()->second.end());
    for (const auto& [expert, names] : experts) groups.erase(absl::StrCat(prefix, expert, "."));
  }
  std::set<std::string> fused;
  for (const auto& [prefix, names] : groups) {
    for (const std::string& name : names) fused.insert(prefix + name);
  }
  return Names(fused.begin(), fused.end());
}

absl::Status CheckStacks(const CheckpointFiles& files, const Names& modules) {
  for (const auto& [prefix, experts] : ExpertsIn(ByPrefix(modules))) {
    const int64_t count = experts.rbegin()->first + 1;
    std::set<std::string> names;
    for (const auto& [expert, own] : experts) names.insert(own.begin(), own.end());
    for (int64_t expert = 0; expert < count; ++expert) {
      const auto found = experts.find(expert);
      for (const std::string& name : names) {
        if (found != experts.end() && found->second.count(name) > 0) continue;
        return BadCheckpoint(absl::StrCat("module ", prefix, expert, ".", name,
                                          ": expected, as other experts of ", count,
                                          " have it; found no tensors for it"));
      }
    }
    GEMMD_RETURN_IF_ERROR(
        CheckExpertCount(files.model_facts(), prefix.substr(0, prefix.size() - 1), count));
  }
  return absl::OkStatus();
}

absl::StatusOr<Names> CheckGroups(const CheckpointFiles& files, const Names& modules,
                                  const Names& chosen, const std::set<std::string>& named) {
  const Stored stored = StoredParts(files);
  std::set<std::string> wanted(chosen.begin(), chosen.end());
  for (const std::string& name : named) wanted.erase(name);
  std::map<std::string, Names> places;  // by what is to be said of them
  for (const auto& [prefix, names] : ByPrefix(modules)) {
    for (const FusedGroup& group : FusedGroups()) {
      const Gap gap{prefix, group, PartsOf(group, names, true), PartsOf(group, names, false)};
      if (gap.missing.empty()) continue;
      if (!std::any_of(gap.present.begin(), gap.present.end(), IsWanted(prefix, wanted))) continue;
      GEMMD_ASSIGN_OR_RETURN(const std::string why, Explain(gap, files.model_facts(), stored));
      if (why.empty()) continue;
      places[absl::StrCat(absl::StrJoin(gap.present, ", "), " stay single, there is no ",
                          group.name, ": ", why)]
          .push_back(prefix.substr(0, prefix.size() - 1));
    }
  }
  Names notes;
  for (const auto& [text, at] : places) {
    notes.push_back(absl::StrCat(
        "module ", at.front(), at.size() == 1 ? "" : absl::StrCat(" and ", at.size() - 1, " more"),
        ": ", text));
  }
  return notes;
}

}  // namespace gemmd
