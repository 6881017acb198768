// What    Whether a stack of experts lacks a bias that the same stack of other layers has. No shape tells that it is
//         missing, and without it the numbers are wrong.
// Errors  InvalidArgument BAD_CHECKPOINT naming file, module, tensor and a layer that has it.
// Threads Pure function of the files.
#ifndef GEMMD_CORE_CHECKPOINT_STACK_BIASES_H_
#define GEMMD_CORE_CHECKPOINT_STACK_BIASES_H_

#include "absl/status/status.h"
#include "core/checkpoint/checkpoint_files.h"
#include "core/checkpoint/module_tensors.h"

namespace gemmd {

// OK for modules that are no stacks of experts, quantized or not, or lie in no numbered layer.
absl::Status CheckStackBias(const CheckpointFiles& files, const ModuleTensors& tensors);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_STACK_BIASES_H_
