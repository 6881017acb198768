// What    Where N and K are in a stack of experts that is not quantized: decided once for all projections of one
//         layer's experts, from the sizes of config.json, from what goes into and comes out of each, last from the
//         model.
// Errors  InvalidArgument BAD_CHECKPOINT where two projections, or one and the model, contradict each other, and for
//         shapes that the config does not explain; Unimplemented UNSUPPORTED_FORMAT where nothing tells.
// Threads Pure functions of the files.
// Source  README.md, "unquantized".
#ifndef GEMMD_CORE_CHECKPOINT_STACK_LAYOUT_H_
#define GEMMD_CORE_CHECKPOINT_STACK_LAYOUT_H_

#include <string>

#include "absl/status/statusor.h"
#include "core/checkpoint/checkpoint_files.h"
#include "core/checkpoint/module_names.h"
#include "core/checkpoint/module_tensors.h"
#include "core/checkpoint/stack_models.h"
#include "kernels/contract/quant_spec.h"

namespace gemmd {

// N and K of a stack of this shape, which has three extents.
LayerShape ShapeAs(StackLayout layout, const Shape& shape);

// Of the weights `weight`, the tensor `key` of module `tensors`, which is projection `part`.
absl::StatusOr<StackLayout> StackLayoutOf(const CheckpointFiles& files, const ModuleTensors& tensors,
                                          const std::string& key, const StackPart& part,
                                          const TensorInfo& weight);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_STACK_LAYOUT_H_
