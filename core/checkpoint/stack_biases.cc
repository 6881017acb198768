#include "core/checkpoint/stack_biases.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/module_names.h"

namespace gemmd {
namespace {

// The names that the bias of module `name` may have; mlp1_bias is that of mlp1_weight.
std::vector<std::string> BiasNames(absl::string_view name) {
  std::vector<std::string> names = {absl::StrCat(name, "_bias"), absl::StrCat(name, ".bias")};
  if (absl::ConsumeSuffix(&name, "_weight")) names.push_back(absl::StrCat(name, "_bias"));
  return names;
}

// Tensors of other layers that have one of these names behind the layer's number.
struct OtherLayers {
  size_t count = 0;
  std::string first;
  std::string rest;  // of its name
};

OtherLayers Holders(const CheckpointFiles& files, const LayerName& own) {
  const std::vector<std::string> names = BiasNames(own.rest);
  OtherLayers others;
  for (auto it = files.index().lower_bound(own.stack); it != files.index().end(); ++it) {
    if (!absl::StartsWith(it->first, own.stack)) break;
    const std::optional<LayerName> other = LayerNameOf(it->first);
    if (!other || other->stack != own.stack) continue;
    if (std::find(names.begin(), names.end(), other->rest) == names.end()) continue;
    if (others.count++ == 0) {
      others.first = it->first;
      others.rest = other->rest;
    }
  }
  return others;
}

}  // namespace

absl::Status CheckStackBias(const CheckpointFiles& files, const ModuleTensors& tensors) {
  const std::string& module = tensors.module();
  if (!IsStackName(module) || StackPartOf(module) == nullptr) return absl::OkStatus();
  if (tensors.Find("_bias") != nullptr || tensors.Find(".bias") != nullptr) return absl::OkStatus();
  const std::optional<LayerName> own = LayerNameOf(module);
  if (!own || !IsLayerStack(own->stack)) return absl::OkStatus();
  const OtherLayers others = Holders(files, *own);
  if (others.count == 0) return absl::OkStatus();
  return BadCheckpoint(absl::StrCat(tensors.FileOf(""), ": module ", module, ": tensor ", own->stack,
                                    own->layer, others.rest, ": missing, expected as ", others.count,
                                    " other layers have it (", others.first, ")"));
}

}  // namespace gemmd
