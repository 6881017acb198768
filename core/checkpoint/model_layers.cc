#include "core/checkpoint/model_layers.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/model_facts.h"
#include "core/checkpoint/module_names.h"

namespace gemmd {
namespace {

using Names = std::vector<std::string>;
using NameSet = std::set<std::string>;

// ---- layers ----

// By stack, its layers that hold a matrix. What lies in a file that cannot be read counts as one: it is not the layer
// that is missing.
std::map<std::string, std::set<int64_t>> LayerStacks(const CheckpointFiles& files) {
  const auto shards = files.Shards();
  std::map<std::string, std::set<int64_t>> stacks;
  for (const auto& [tensor, shard] : files.index()) {
    const std::optional<LayerName> name = LayerNameOf(tensor);
    if (!name || !IsLayerStack(name->stack)) continue;
    const SafetensorsFile* const file = shards.at(shard);
    const TensorInfo* const info = file == nullptr ? nullptr : file->Find(tensor);
    if (file != nullptr && (info == nullptr || info->shape.size() < 2)) continue;
    stacks[name->stack].insert(name->layer);
  }
  return stacks;
}

// The modules of one layer of `stack` by what follows its number, one of each role: experts are alike.
Names ModulesOfLayer(const std::string& stack, const Names& modules) {
  std::map<std::string, std::string> by_role;
  for (const std::string& module : modules) {
    const std::optional<LayerName> name = LayerNameOf(module);
    if (name && name->stack == stack) by_role.emplace(RoleOf(name->rest), name->rest);
  }
  Names rests;
  for (const auto& [role, rest] : by_role) rests.push_back(rest);
  return rests;
}

int64_t HeldBelow(const ModelFacts::LayerCount& count, const std::set<int64_t>& held) {
  return std::distance(held.begin(), held.lower_bound(count.count));
}

// The stack that has most of the layers that `count` promises.
std::string BestStack(const ModelFacts::LayerCount& count,
                      const std::map<std::string, std::set<int64_t>>& stacks) {
  return std::max_element(stacks.begin(), stacks.end(),
                          [&](const auto& a, const auto& b) {
                            return HeldBelow(count, a.second) < HeldBelow(count, b.second);
                          })
      ->first;
}

// Layers that `count` promises and `held` lacks, if any of `modules` would be wanted of them.
std::vector<int64_t> MissingLayers(const ModelFacts::LayerCount& count, const std::string& stack,
                                   const std::set<int64_t>& held, const Names& modules,
                                   const WantedFunction& wanted) {
  std::vector<int64_t> missing;
  for (int64_t layer = 0; layer < count.count; ++layer) {
    if (held.count(layer) > 0 || count.empty_layers.count(layer) > 0) continue;
    const bool is_wanted = std::any_of(modules.begin(), modules.end(), [&](const auto& rest) {
      return wanted(absl::StrCat(stack, layer, rest));
    });
    if (is_wanted) missing.push_back(layer);
  }
  return missing;
}

absl::Status Describe(const CheckpointFiles& files, const ModelFacts::LayerCount& count,
                      const std::string& stack, int64_t held, const std::vector<int64_t>& missing) {
  constexpr size_t kMostNamed = 8;
  Names named;
  for (size_t i = 0; i < std::min(missing.size(), kMostNamed); ++i) {
    named.push_back(absl::StrCat(stack, missing[i]));
  }
  if (missing.size() > kMostNamed) {
    named.push_back(absl::StrCat(missing.size() - kMostNamed, " more"));
  }
  return BadCheckpoint(absl::StrCat(files.PathOf("config.json"), ": \"", count.key,
                                    "\": expected linears in the ", count.count, " layers ", stack,
                                    "0 to ", count.count - 1, ", got them in ", held,
                                    "; there are none in ", absl::StrJoin(named, ", ")));
}

// ---- projections ----

// What goes into an attention or MLP, and what comes out of it.
struct Ends {
  NameSet in;
  NameSet out;
};

const std::array<Ends, 6>& KnownEnds() {
  static const auto* const kEnds = new std::array<Ends, 6>{{
      {{"q_proj", "k_proj", "v_proj", "qkv_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa",
        "kv_b_proj", "fused_qkv_a_proj"},
       {"o_proj", "out_proj"}},
      {{"gate_proj", "up_proj", "gate_up_proj"}, {"down_proj"}},
      {{"w1", "w3", "w13"}, {"w2"}},
      {{"fc1"}, {"fc2"}},
      {{"mlp1_weight"}, {"mlp2_weight"}},
      {{"input_linear"}, {"output_linear"}},
  }};
  return *kEnds;
}

NameSet Common(const NameSet& a, const NameSet& b) {
  NameSet common;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(),
                        std::inserter(common, common.begin()));
  return common;
}

bool Includes(const NameSet& all, const NameSet& some) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

// RolePlaces of one role: names below each prefix.
using RolePlaces = std::vector<std::pair<std::string, NameSet>>;

struct MissingEnd {
  std::string beside;  // a name that is there
  NameSet missing;     // names that are not
};

// What `names` lacks that one of `whole`, places with both ends, has beside the same names.
MissingEnd FindMissing(const Ends& ends, const NameSet& names, const std::set<NameSet>& whole) {
  const NameSet in = Common(names, ends.in);
  const NameSet out = Common(names, ends.out);
  if (in.empty() == out.empty()) return {};
  for (const NameSet& other : whole) {
    if (!Includes(other, names)) continue;
    return {in.empty() ? *out.begin() : *in.begin(),
            Common(other, in.empty() ? ends.in : ends.out)};
  }
  return {};
}

// The places that lack one name, of a stack of experts or alone.
struct Lack {
  std::string module;  // the first
  std::string beside;
  size_t more_experts = 0;
};

void CheckRole(const Ends& ends, const RolePlaces& places, const WantedFunction& wanted,
               std::vector<absl::Status>& problems) {
  constexpr size_t kMostKinds = 64;  // of places with one role: models have a few
  std::set<NameSet> whole;
  Names holders;
  for (const auto& [prefix, names] : places) {
    if (Common(names, ends.in).empty() || Common(names, ends.out).empty()) continue;
    if (whole.size() < kMostKinds) whole.insert(names);
    holders.push_back(prefix);
  }
  if (whole.empty()) return;
  std::map<std::string, Lack> lacks;  // by the name in the stack
  for (const auto& [prefix, names] : places) {
    const MissingEnd end = FindMissing(ends, names, whole);
    const auto expert = ExpertOf(prefix);
    for (const std::string& name : end.missing) {
      if (!wanted(prefix + name)) continue;
      const auto [lack, is_new] = lacks.try_emplace((expert ? expert->first : prefix) + name,
                                                    Lack{prefix + name, end.beside});
      if (!is_new) ++lack->second.more_experts;
    }
  }
  for (const auto& [name, lack] : lacks) {
    problems.push_back(BadCheckpoint(absl::StrCat(
        "module ", lack.module, ": expected beside ", lack.beside, ", as ", holders.size(),
        " other places have both (", holders.front(), lack.beside, "); found no tensors for it",
        lack.more_experts == 0
            ? ""
            : absl::StrCat(", nor for ", lack.more_experts, " of the other experts"))));
  }
}

}  // namespace

std::vector<absl::Status> CheckLayers(const CheckpointFiles& files, const Names& modules,
                                      const WantedFunction& wanted) {
  const std::map<std::string, std::set<int64_t>> stacks = LayerStacks(files);
  if (stacks.empty()) return {};
  std::vector<absl::Status> problems;
  for (const ModelFacts::LayerCount& count : files.model_facts().layer_counts) {
    const std::string stack = BestStack(count, stacks);
    const std::set<int64_t>& held = stacks.at(stack);
    const std::vector<int64_t> missing =
        MissingLayers(count, stack, held, ModulesOfLayer(stack, modules), wanted);
    if (missing.empty()) return {};  // of several counts one must fit
    problems.push_back(Describe(files, count, stack, HeldBelow(count, held), missing));
  }
  if (problems.size() > 1) problems.resize(1);
  return problems;
}

std::vector<absl::Status> CheckProjections(const CheckpointFiles& files, const Names& modules,
                                           const WantedFunction& wanted) {
  std::map<std::string, RolePlaces> roles;
  for (const auto& [prefix, names] : StoredNames(files.index(), modules)) {
    roles[RoleOf(prefix)].emplace_back(prefix, names);
  }
  std::vector<absl::Status> problems;
  for (const auto& [role, places] : roles) {
    for (const Ends& ends : KnownEnds()) CheckRole(ends, places, wanted, problems);
  }
  return problems;
}

}  // namespace gemmd
