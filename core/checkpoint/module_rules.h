// What    Which module gets which scheme: patterns of exporters' configs.
// Errors  InvalidArgument BAD_CHECKPOINT for a pattern we cannot read.
// Threads Pure functions.
#ifndef GEMMD_CORE_CHECKPOINT_MODULE_RULES_H_
#define GEMMD_CORE_CHECKPOINT_MODULE_RULES_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/checkpoint/json.h"

namespace gemmd {

// Python's re.match: anchored at the start of `text`, not at its end.
absl::StatusOr<bool> PythonMatch(const std::string& pattern, const std::string& text);

// Hugging Face modules_to_not_convert: a pattern matches the start of the name, or is its end.
absl::StatusOr<bool> SkippedByPatterns(const std::vector<std::string>& patterns,
                                       const std::string& module);

// Shell-style match of the whole name: '*' is any text, dots included, '?' one character.
bool ShellMatch(absl::string_view pattern, absl::string_view text);

// GPTQ `dynamic`: the first pattern that matches decides. nullopt: the module is not quantized;
// otherwise the config with the overrides of that pattern.
absl::StatusOr<std::optional<Json>> ApplyDynamic(const Json& config, const std::string& module);

// compressed-tensors: the config groups that `module` may belong to. None: not quantized. The
// library and vLLM disagree about the order of targets; more than one group means that they choose
// differently here.
absl::StatusOr<std::vector<Json>> ResolveConfigGroups(const Json& config,
                                                      const std::string& module);

// Why ResolveConfigGroups gives none, in words.
std::string WhyInNoGroup(const Json& config, const std::string& module);

// What the config says of `module` and need not say of others of its role, as text to compare: names may decide on
// a scheme whose tensors look the same. `config` may be null: empty.
absl::StatusOr<std::string> RulesOf(const Json& config, const std::string& module);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_MODULE_RULES_H_
