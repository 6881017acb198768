#include "core/checkpoint/model_parts.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/model_facts.h"
#include "core/checkpoint/module_names.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

using Names = std::vector<std::string>;

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

// What the files hold: the modules below each prefix, and for each part in each role the modules that have it.
struct Stored {
  NamesByPrefix by_prefix;
  std::map<std::pair<std::string, std::string>, Names> by_role;

  bool Has(const std::string& prefix, const std::string& name) const {
    return HasName(by_prefix, prefix, name);
  }
};

Stored StoredParts(const CheckpointFiles& files, const Names& modules) {
  Stored stored{StoredNames(files.index(), modules), {}};
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
  const std::optional<LayerName> layer = LayerNameOf(gap.prefix);
  const bool shared =
      facts.first_shared_kv_layer && layer && layer->layer >= *facts.first_shared_kv_layer;
  return shared ? "num_kv_shared_layers of config.json" : "";
}

// Parts that are missing at `prefix` although other layers have them in this role.
std::vector<absl::Status> MissingParts(const Gap& gap, const Stored& stored) {
  std::vector<absl::Status> problems;
  for (const std::string& part : gap.missing) {
    const auto others = stored.by_role.find({RoleOf(gap.prefix), part});
    if (others == stored.by_role.end()) continue;
    problems.push_back(BadCheckpoint(absl::StrCat(
        "module ", gap.prefix, part, ": expected beside ", gap.present.front(), ", as ",
        others->second.size(), " other layers have it (", others->second.front(),
        "); found no tensors for it")));
  }
  return problems;
}

// Why `gap` may stay open; nullopt: nothing says so. Empty: it is no gap but how models are made.
std::optional<std::string> WhyOpen(const Gap& gap, const ModelFacts& facts, const Stored& stored) {
  for (const std::string& part : gap.missing) {
    if (stored.Has(gap.prefix, part)) return absl::StrCat(part, " is not quantized");
  }
  if (gap.present == Names{gap.group.alone} && HasLatentKeys(gap, stored)) return "";
  std::string why = WhyWithout(gap, facts);
  if (why.empty()) return std::nullopt;
  return why;
}

// A gap of which no other layer tells more.
std::string ModelLacks(const Gap& gap) {
  if (gap.present == Names{gap.group.alone}) return "";
  return absl::StrCat("the model has no ", absl::StrJoin(gap.missing, ", "));
}

// By what is to be said of them, the places of which it is said.
using Places = std::map<std::string, Names>;

void Explain(const Gap& gap, const ModelFacts& facts, const Stored& stored,
             std::vector<absl::Status>& problems, Places& places) {
  std::optional<std::string> why = WhyOpen(gap, facts, stored);
  if (!why) {
    std::vector<absl::Status> missing = MissingParts(gap, stored);
    if (missing.empty()) why = ModelLacks(gap);
    problems.insert(problems.end(), missing.begin(), missing.end());
  }
  if (!why || why->empty()) return;
  places[absl::StrCat(absl::StrJoin(gap.present, ", "), " stay single, there is no ", gap.group.name,
                      ": ", *why)]
      .push_back(gap.prefix.substr(0, gap.prefix.size() - 1));
}

Names NotesOf(const Places& places) {
  Names notes;
  for (const auto& [text, at] : places) {
    notes.push_back(absl::StrCat(
        "module ", at.front(), at.size() == 1 ? "" : absl::StrCat(" and ", at.size() - 1, " more"),
        ": ", text));
  }
  return notes;
}

// ---- stacks that are not whole ----

// Of a part of experts: those that have it, in order.
using Holders = std::vector<int64_t>;

std::map<std::string, Holders> HoldersOf(
    const std::map<int64_t, std::set<std::string>>& experts) {
  std::map<std::string, Holders> holders;
  for (const auto& [expert, names] : experts) {
    for (const std::string& name : names) holders[name].push_back(expert);
  }
  return holders;
}

// The first of 0, 1, ... that is not among `holders`.
int64_t FirstWithout(const Holders& holders) {
  int64_t expert = 0;
  for (const int64_t holder : holders) {
    if (holder != expert) break;
    ++expert;
  }
  return expert;
}

}  // namespace

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

Names JoinedNames(const std::string& module) {
  const auto [prefix, name] = SplitModule(module);
  Names names = {name};
  for (const FusedGroup& group : FusedGroups()) {
    if (std::count(group.parts.begin(), group.parts.end(), name) > 0) names.push_back(group.name);
  }
  Names joined;
  for (const std::string& one : names) joined.push_back(prefix + one);
  if (const auto expert = ExpertOf(prefix)) {
    for (const std::string& one : names) joined.push_back(expert->first + one);
  }
  return joined;
}

std::vector<absl::Status> CheckStacks(const CheckpointFiles& files, const Names& modules) {
  std::vector<absl::Status> problems;
  for (const auto& [prefix, experts] : ExpertsIn(ByPrefix(modules))) {
    const int64_t count = experts.rbegin()->first + 1;
    for (const auto& [name, holders] : HoldersOf(experts)) {
      const int64_t others = count - static_cast<int64_t>(holders.size()) - 1;
      if (others < 0) continue;
      problems.push_back(BadCheckpoint(absl::StrCat(
          "module ", prefix, FirstWithout(holders), ".", name, ": expected, as other experts of ",
          count, " have it; found no tensors for it",
          others == 0 ? "" : absl::StrCat(", nor for ", others, " of the other experts"))));
    }
    if (!IsOfRoutedExperts(prefix)) continue;
    const absl::Status counted =
        CheckExpertCount(files.model_facts(), prefix.substr(0, prefix.size() - 1), count);
    if (!counted.ok()) problems.push_back(counted);
  }
  return problems;
}

OpenGroups CheckGroups(const CheckpointFiles& files, const Names& modules, const Names& chosen,
                       const std::set<std::string>& named) {
  const Stored stored = StoredParts(files, modules);
  std::set<std::string> wanted(chosen.begin(), chosen.end());
  for (const std::string& name : named) wanted.erase(name);
  OpenGroups open;
  Places places;
  for (const auto& [prefix, names] : ByPrefix(modules)) {
    for (const FusedGroup& group : FusedGroups()) {
      const Gap gap{prefix, group, PartsOf(group, names, true), PartsOf(group, names, false)};
      if (gap.missing.empty()) continue;
      if (!std::any_of(gap.present.begin(), gap.present.end(), IsWanted(prefix, wanted))) continue;
      Explain(gap, files.model_facts(), stored, open.problems, places);
    }
  }
  open.notes = NotesOf(places);
  return open;
}

}  // namespace gemmd
