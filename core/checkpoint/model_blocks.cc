#include "core/checkpoint/model_blocks.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/model_facts.h"
#include "core/checkpoint/module_names.h"

namespace gemmd {
namespace {

using NameSet = std::set<std::string>;

constexpr size_t kFewestAlike = 2;
constexpr size_t kMostKinds = 64;  // of layers: models have a few

// Attention or MLP of a layer, by the names that models give them.
const NameSet& BlockNames() {
  static const auto* const kNames = new NameSet{
      "self_attn", "attention", "attn", "self_attention", "linear_attn", "mixer",
      "mlp", "feed_forward", "ffn", "block_sparse_moe", "moe"};
  return *kNames;
}

const NameSet& ExpertNames() {
  static const auto* const kNames = new NameSet{"experts"};
  return *kNames;
}

// The same place in every layer of a stack: the layer itself, or its MLP with experts and router.
struct Place {
  std::string stack;  // "model.layers."
  std::string below;  // "." or ".mlp."
  friend auto operator<=>(const Place&, const Place&) = default;
};

// What each layer has at the place.
using Contents = std::map<int64_t, NameSet>;

// One pass over the names of all tensors.
std::map<Place, Contents> ReadPlaces(const CheckpointFiles& files) {
  std::map<Place, Contents> places;
  for (const auto& [tensor, shard] : files.index()) {
    const std::optional<LayerName> name = LayerNameOf(tensor);
    if (!name || !IsLayerStack(name->stack)) continue;
    const std::vector<std::string> words = absl::StrSplit(name->rest, '.');  // "", "mlp", "gate", ...
    if (words.size() < 2) continue;
    places[{name->stack, "."}][name->layer].insert(words[1]);
    if (words.size() < 3) continue;
    places[{name->stack, absl::StrCat(".", words[1], ".")}][name->layer].insert(words[2]);
  }
  return places;
}

std::string TypeOf(const ModelFacts& facts, int64_t layer) {
  const auto at = static_cast<size_t>(layer);
  return at < facts.layer_types.size() ? facts.layer_types[at] : "";
}

// Layers of one type with the same names at a place, by both.
using Kinds = std::map<std::pair<std::string, NameSet>, std::vector<int64_t>>;

Kinds KindsOf(const Contents& contents, const ModelFacts& facts) {
  Kinds kinds;
  for (const auto& [layer, names] : contents) kinds[{TypeOf(facts, layer), names}].push_back(layer);
  return kinds;
}

// The layers of other kinds that are of the type of `kind` and have all its names, and what they all have.
struct Alike {
  size_t count = 0;
  int64_t first = 0;
  NameSet common;
};

Alike LayersLike(const Kinds::value_type& kind, const Kinds& kinds) {
  const auto& [type, names] = kind.first;
  Alike alike;
  for (const auto& [other, layers] : kinds) {
    if (other.first != type || other.second == names) continue;
    if (!std::includes(other.second.begin(), other.second.end(), names.begin(), names.end())) continue;
    const bool is_first = alike.count == 0;
    alike.first = is_first ? layers.front() : std::min(alike.first, layers.front());
    alike.count += layers.size();
    if (is_first) alike.common = other.second;
    std::erase_if(alike.common,
                  [&theirs = other.second](const std::string& name) { return theirs.count(name) == 0; });
  }
  return alike;
}

class Checker {
 public:
  Checker(const CheckpointFiles& files, const std::vector<std::string>& modules,
          const WantedFunction& wanted)
      : facts_(files.model_facts()), modules_(modules), wanted_(wanted) {}

  void Check(const Place& place, const Contents& contents, std::vector<absl::Status>& problems) const {
    const NameSet& parts = place.below == "." ? BlockNames() : ExpertNames();
    const Kinds kinds = KindsOf(contents, facts_);
    if (kinds.size() > kMostKinds) return;
    for (const auto& kind : kinds) {
      if (kind.second.size() > 1) continue;  // another layer is made so
      if (!HoldsModule(absl::StrCat(place.stack, kind.second.front(), "."))) continue;  // CheckLayers looks at these
      const Alike alike = LayersLike(kind, kinds);
      if (alike.count < kFewestAlike) continue;
      for (const std::string& part : parts) {
        if (kind.first.second.count(part) > 0 || alike.common.count(part) == 0) continue;
        const std::string missing = absl::StrCat(place.stack, kind.second.front(), place.below, part);
        const std::string beside = absl::StrCat(place.stack, alike.first, place.below, part);
        if (IsWanted(missing, beside)) problems.push_back(Lacks(missing, beside, alike.count));
      }
    }
  }

 private:
  static absl::Status Lacks(const std::string& missing, const std::string& beside, size_t alike) {
    return BadCheckpoint(absl::StrCat("module ", missing, ": expected, as all ", alike,
                                      " other layers like this one have it (", beside,
                                      "); found no tensors for it"));
  }

  bool HoldsModule(const std::string& prefix) const {
    return std::any_of(modules_.begin(), modules_.end(), [&prefix](const std::string& module) {
      return absl::StartsWith(module, prefix);
    });
  }

  // Whether one of the modules in `beside` would be wanted in `missing`. Without any there, no linear is missing.
  bool IsWanted(const std::string& missing, const std::string& beside) const {
    return std::any_of(modules_.begin(), modules_.end(), [&](const std::string& module) {
      absl::string_view rest = module;
      return absl::StartsWith(module, beside + ".") &&
             wanted_(absl::StrCat(missing, rest.substr(beside.size())));
    });
  }

  const ModelFacts& facts_;
  const std::vector<std::string>& modules_;
  const WantedFunction& wanted_;
};

}  // namespace

std::vector<absl::Status> CheckBlocks(const CheckpointFiles& files,
                                      const std::vector<std::string>& modules,
                                      const WantedFunction& wanted) {
  std::vector<absl::Status> problems;
  if (files.model_facts().leaves_parts_out) return problems;
  const Checker checker(files, modules, wanted);
  for (const auto& [place, contents] : ReadPlaces(files)) checker.Check(place, contents, problems);
  return problems;
}

}  // namespace gemmd
