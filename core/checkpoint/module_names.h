// What    Names of a checkpoint's modules as places in its model: "model.layers.7.mlp.experts.3.w1" is part w1 of
//         expert 3 in layer 7 of the stack "model.layers.".
// Threads Pure functions.
#ifndef GEMMD_CORE_CHECKPOINT_MODULE_NAMES_H_
#define GEMMD_CORE_CHECKPOINT_MODULE_NAMES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace gemmd {

// "a.b.c" -> "a.b." and "c".
std::pair<std::string, std::string> SplitModule(const std::string& module);

// Whether modules with this prefix are stacks of routed experts: "a.experts.", and not "a.shared_experts.", through
// which every token goes.
bool IsOfRoutedExperts(const std::string& prefix);

// Whether the module is a layer of several experts, by its name: "a.experts.down_proj", "a.mlp1_weight",
// "a.block_sparse_moe.input_linear".
bool IsStackName(const std::string& module);

// Which matrix of the experts' MLP a stack holds.
struct StackPart {
  const char* name;       // of the module, without its prefix
  bool goes_in;           // K is the hidden size; else N
  bool is_fused = false;  // gate and up
};
// By the last part of the module's name; nullptr: not a name that stacks are known to have.
const StackPart* StackPartOf(const std::string& module);

// "a.experts.7." -> "a.experts." and 7.
std::optional<std::pair<std::string, int64_t>> ExpertOf(const std::string& prefix);

// The name that `module` has in the part of the model for text: "model.layers.0.w" of "language_model.model.layers.0.w" and
// of "model.language_model.layers.0.w", "lm_head" of "language_model.lm_head". nullopt: it is none of such a part, or its
// name is the same there.
std::optional<std::string> NameInTextPart(const std::string& module);

// What a place in the model is for: its prefix with '*' for numbers.
std::string RoleOf(const std::string& prefix);

// A name cut at its first number: "model.layers.", 7 and ".mlp.experts.3.w1".
struct LayerName {
  std::string stack;
  int64_t layer;
  std::string rest;
};
std::optional<LayerName> LayerNameOf(const std::string& name);

// Whether `stack` ("model.layers.") is one of the model's own layers, by its name: not those of another encoder, nor
// steps of a sequence.
bool IsLayerStack(const std::string& stack);

// What `modules` and the names of `tensors` hold below each prefix. A tensor counts as itself too: a stack of
// experts may be stored without a ".weight" behind its name.
using NamesByPrefix = std::map<std::string, std::set<std::string>>;
NamesByPrefix ByPrefix(const std::vector<std::string>& modules);
NamesByPrefix StoredNames(const std::map<std::string, std::string>& tensors,
                          const std::vector<std::string>& modules);
bool HasName(const NamesByPrefix& stored, const std::string& prefix, const std::string& name);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_MODULE_NAMES_H_
