// What    What the name of a model tells of its experts in one tensor: where N and K are in their shape, and the order
//         of rows. README.md, "unquantized".
// Threads Pure functions.
#ifndef GEMMD_CORE_CHECKPOINT_STACK_MODELS_H_
#define GEMMD_CORE_CHECKPOINT_STACK_MODELS_H_

#include <string>

#include "core/checkpoint/model_facts.h"

namespace gemmd {

// Where N and K are in the shape of a stack.
enum class StackLayout { kRows, kColumns };  // [E, N, K], [E, K, N]

struct StackModel {
  const char* type;          // model_type begins with it
  const char* architecture;  // so does the name of the class
  StackLayout layout;
  bool is_sure;              // the model's files have no other layout
  bool interleaves = false;  // rows of fused gate and up alternate
  bool has_bias = false;     // every projection of its experts
};

// nullptr: not a model of which anything is known.
const StackModel* StackModelOf(const ModelFacts& facts);

// "model_type llama4, llama4_text".
std::string DescribeModel(const ModelFacts& facts);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_STACK_MODELS_H_
