#include "core/checkpoint/plain_modules.h"

#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/checkpoint/module_names.h"

namespace gemmd {
namespace {

// Whether the weight of `module` that is not quantized holds all experts of a layer, as names or the config's count
// say. A name tells also of one that is damaged or cannot be read.
bool IsExpertStack(const std::string& module, const std::string& name, const TensorInfo* found,
                   const ModelFacts& facts) {
  if (IsStackName(module) && StackPartOf(module) != nullptr) return true;
  if (found == nullptr) return false;
  const TensorInfo& info = *found;
  const bool is_matrix = info.shape.size() == 2;
  if (is_matrix && absl::StrContains(name, ".experts.mlp.")) return true;  // DBRX: [E * I, K]
  if (info.shape.size() != 3) return false;
  if (absl::StrContains(name, ".experts.")) return true;
  // Granite's and JetMoE's, below whatever holds their experts.
  const bool is_named = absl::EndsWith(module, ".input_linear") || absl::EndsWith(module, ".output_linear");
  if (is_named && info.shape[1] > 1) return true;
  const auto has_count = [&info](const ModelFacts::ExpertCount& experts) {
    return experts.count == info.shape[0] && info.shape[1] > 1;
  };
  return std::any_of(facts.expert_counts.begin(), facts.expert_counts.end(), has_count);
}

// The module whose codes `tensor` would be in a quantized checkpoint; empty: none.
std::string ModuleOfCodes(absl::string_view tensor) {
  for (const char* codes : {".qweight", ".weight_packed", "_blocks", ".blocks"}) {
    if (absl::ConsumeSuffix(&tensor, codes)) return std::string(tensor);
  }
  return "";
}

// The modules of a checkpoint that is not quantized, by what their tensors look like.
struct PlainModules {
  std::set<std::string> linears;  // and stacks of experts
  std::set<std::string> linear_roles;
  std::set<std::string> others;   // with other tensors, or in a file that cannot be read
  std::set<std::string> unread;   // weights in such a file
};

PlainModules SortPlainModules(const CheckpointFiles& files) {
  const auto shards = files.Shards();
  PlainModules modules;
  for (const auto& [name, shard] : files.index()) {
    absl::string_view stem = name;
    const bool is_weight = absl::ConsumeSuffix(&stem, ".weight");
    const std::string module(is_weight ? stem : stem.substr(0, stem.rfind('.')));
    // Experts in one tensor have their bias in another, beside it: it tells of them where they are missing.
    if (absl::EndsWith(stem, "_proj_bias")) absl::ConsumeSuffix(&stem, "_bias");
    const SafetensorsFile* const file = shards.at(shard);
    if (file == nullptr && is_weight) modules.unread.insert(module);
    const TensorInfo* const info = file == nullptr ? nullptr : file->Find(name);
    if (file != nullptr && info == nullptr) continue;  // of the index alone
    if (info != nullptr && is_weight && info->shape.size() == 2) {
      modules.linears.insert(module);
      modules.linear_roles.insert(RoleOf(module));
    } else if (const std::string coded = ModuleOfCodes(name); !coded.empty()) {
      modules.linears.insert(coded);
    } else if (IsExpertStack(std::string(stem), name, info, files.model_facts())) {
      modules.linears.emplace(stem);
    } else {
      modules.others.insert(module);
    }
  }
  return modules;
}

}  // namespace

bool IsConv1D(const ModelFacts& facts, const std::string& module) {
  constexpr absl::string_view kModels[] = {"gpt2", "openai-gpt", "imagegpt", "decision_transformer"};
  constexpr absl::string_view kModules[] = {".c_attn", ".c_proj", ".c_fc", ".q_attn"};
  const bool is_such_model = std::any_of(facts.model_types.begin(), facts.model_types.end(), [&](const auto& type) {
    return std::find(std::begin(kModels), std::end(kModels), type) != std::end(kModels);
  });
  return is_such_model && std::any_of(std::begin(kModules), std::end(kModules), [&](absl::string_view name) {
           return absl::EndsWith(absl::StrCat(".", module), name);
         });
}

std::vector<std::string> ListLinears(const CheckpointFiles& files) {
  PlainModules modules = SortPlainModules(files);
  std::set<std::string> roles;  // of whole weights
  for (const std::string& module : modules.others) {
    const std::string role = RoleOf(module);
    const bool is_unread = modules.unread.count(module) > 0;
    if (!is_unread) roles.insert(role);
    if (modules.linear_roles.count(role) > 0) modules.linears.insert(module);
  }
  for (const std::string& module : modules.unread) {
    const bool is_known = roles.count(RoleOf(module)) > 0;
    if (!is_known && !absl::StrContains(module, "norm")) modules.linears.insert(module);
  }
  return std::vector<std::string>(modules.linears.begin(), modules.linears.end());
}

}  // namespace gemmd
