#include "core/checkpoint/module_names.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace gemmd {
namespace {

constexpr char kExperts[] = "experts.";

// Plain decimal numbers of 31 bits only: "007" and "+7" name something else.
std::optional<int64_t> NumberOf(const std::string& component) {
  int32_t number = 0;
  if (!absl::SimpleAtoi(component, &number) || number < 0 || absl::StrCat(number) != component) {
    return std::nullopt;
  }
  return number;
}

}  // namespace

std::pair<std::string, std::string> SplitModule(const std::string& module) {
  const size_t dot = module.rfind('.');
  if (dot == std::string::npos) return {"", module};
  return {module.substr(0, dot + 1), module.substr(dot + 1)};
}

bool IsOfRoutedExperts(const std::string& prefix) {
  return prefix == kExperts || absl::EndsWith(prefix, absl::StrCat(".", kExperts));
}

const StackPart* StackPartOf(const std::string& module) {
  static constexpr StackPart kParts[] = {{"gate_up_proj", true, true},
                                         {"gate_proj", true},
                                         {"up_proj", true},
                                         {"down_proj", false},
                                         {"w1", true},
                                         {"w3", true},
                                         {"w2", false},
                                         {"w13", true, true},
                                         {"input_linear", true, true},
                                         {"output_linear", false},
                                         {"mlp1_weight", true, true},
                                         {"mlp2_weight", false}};
  const std::string name = SplitModule(module).second;
  const auto* const found =
      std::find_if(std::begin(kParts), std::end(kParts),
                   [&name](const StackPart& part) { return part.name == name; });
  return found == std::end(kParts) ? nullptr : found;
}

bool IsStackName(const std::string& module) {
  const auto [prefix, name] = SplitModule(module);
  if (IsOfRoutedExperts(prefix) || name == "mlp1_weight" || name == "mlp2_weight") return true;
  return absl::EndsWith(prefix, "moe.") && StackPartOf(module) != nullptr;
}

std::optional<std::pair<std::string, int64_t>> ExpertOf(const std::string& prefix) {
  if (prefix.empty()) return std::nullopt;
  const auto [parent, digits] = SplitModule(prefix.substr(0, prefix.size() - 1));
  const std::optional<int64_t> expert = NumberOf(digits);
  if (!expert || !absl::EndsWith(parent, kExperts)) return std::nullopt;
  return std::pair(parent, *expert);
}

std::optional<std::string> NameInTextPart(const std::string& module) {
  static constexpr std::pair<absl::string_view, absl::string_view> kPrefixes[] = {
      {"model.language_model.", "model."}, {"language_model.", ""}, {"thinker.", ""}};
  for (const auto& [prefix, own] : kPrefixes) {
    absl::string_view rest = module;
    if (absl::ConsumePrefix(&rest, prefix)) return absl::StrCat(own, rest);
  }
  return std::nullopt;
}

std::string RoleOf(const std::string& prefix) {
  std::vector<std::string> components = absl::StrSplit(prefix, '.');
  for (std::string& component : components) {
    if (NumberOf(component)) component.assign(1, '*');
  }
  return absl::StrJoin(components, ".");
}

std::optional<LayerName> LayerNameOf(const std::string& name) {
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    if (const auto layer = NumberOf(name.substr(begin, end - begin))) {
      return LayerName{name.substr(0, begin), *layer, name.substr(end)};
    }
    begin = end + 1;
  }
  return std::nullopt;
}

bool IsLayerStack(const std::string& stack) {
  if (stack.empty()) return false;
  static const auto* const kNames = new std::set<std::string>{"layers", "layer", "h", "block", "blocks"};
  if (kNames->count(SplitModule(stack.substr(0, stack.size() - 1)).second) == 0) return false;
  for (const char* other : {"vision", "visual", "vit", "image", "audio", "speech"}) {
    if (absl::StrContains(stack, other)) return false;
  }
  return true;
}

NamesByPrefix ByPrefix(const std::vector<std::string>& modules) {
  NamesByPrefix names;
  for (const std::string& module : modules) {
    const auto [prefix, name] = SplitModule(module);
    names[prefix].insert(name);
  }
  return names;
}

NamesByPrefix StoredNames(const std::map<std::string, std::string>& tensors,
                          const std::vector<std::string>& modules) {
  NamesByPrefix names = ByPrefix(modules);
  for (const auto& [tensor, file] : tensors) {
    const auto [parent, own] = SplitModule(tensor);
    names[parent].insert(own);
    if (parent.empty()) continue;
    const auto [prefix, name] = SplitModule(parent.substr(0, parent.size() - 1));
    names[prefix].insert(name);
  }
  return names;
}

bool HasName(const NamesByPrefix& stored, const std::string& prefix, const std::string& name) {
  const auto found = stored.find(prefix);
  return found != stored.end() && found->second.count(name) > 0;
}

}  // namespace gemmd
