#include "core/checkpoint/stack_models.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace gemmd {
namespace {

using enum StackLayout;

// The first that fits counts. Those that are not sure are read as transformers 5 holds them.
constexpr StackModel kModels[] = {
    {"gpt_oss", "GptOss", kColumns, true, true, true},
    {"llama4", "Llama4", kColumns, true},
    {"qwen2_moe", "Qwen2Moe", kRows, false},
    {"qwen3_moe", "Qwen3Moe", kRows, false},
    {"qwen3_next", "Qwen3Next", kRows, false},
    {"qwen3_5_moe", "Qwen3_5Moe", kRows, false},
    {"deepseek_v2", "DeepseekV2", kRows, false},
    {"deepseek_v3", "DeepseekV3", kRows, false},
    {"glm4_moe", "Glm4Moe", kRows, false},
    {"mixtral", "Mixtral", kRows, false},
    {"minimax", "MiniMax", kRows, false},
    {"olmoe", "Olmoe", kRows, false},
    {"phimoe", "Phimoe", kRows, false},
};

bool Names(const StackModel& model, const ModelFacts& facts) {
  const auto begins = [](const std::vector<std::string>& names, const char* prefix) {
    return std::any_of(names.begin(), names.end(), [prefix](const std::string& name) {
      return absl::StartsWith(name, prefix);
    });
  };
  return facts.model_types.empty() ? begins(facts.architectures, model.architecture)
                                   : begins(facts.model_types, model.type);
}

}  // namespace

const StackModel* StackModelOf(const ModelFacts& facts) {
  const auto* const found =
      std::find_if(std::begin(kModels), std::end(kModels),
                   [&](const StackModel& model) { return Names(model, facts); });
  return found == std::end(kModels) ? nullptr : found;
}

std::string DescribeModel(const ModelFacts& facts) {
  if (!facts.model_types.empty())
    return absl::StrCat("model_type ", absl::StrJoin(facts.model_types, ", "));
  if (facts.architectures.empty()) return "no model_type";
  return absl::StrCat("architectures ", absl::StrJoin(facts.architectures, ", "));
}

}  // namespace gemmd
