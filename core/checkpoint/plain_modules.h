// What    The linears and stacks of experts of a checkpoint that is not quantized, by what its tensors look like.
// Damaged What cannot be read is listed too, so that it fails and does not go missing: experts in one tensor of
//         another name or shape than is known; modules with the codes of a quantized one; modules without a weight
//         [N, K] that have one elsewhere, in another layer; and what lies in a file that cannot be read, unless its name
//         or modules of its role show that it is none.
// Threads Pure function.
#ifndef GEMMD_CORE_CHECKPOINT_PLAIN_MODULES_H_
#define GEMMD_CORE_CHECKPOINT_PLAIN_MODULES_H_

#include <string>
#include <vector>

#include "core/checkpoint/checkpoint_files.h"
#include "core/checkpoint/model_facts.h"

namespace gemmd {

// Sorted.
std::vector<std::string> ListLinears(const CheckpointFiles& files);

// Whether it is a linear of transformers' Conv1D, which stores [K, N]: GPT-2's attention and MLP, and those that derive
// from it.
bool IsConv1D(const ModelFacts& facts, const std::string& module);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_PLAIN_MODULES_H_
