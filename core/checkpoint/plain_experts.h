// What    Experts in one tensor that is not quantized, as the standard representation has them: [E, N, K].
// Layout  <module> or <module>.weight: [E, N, K], or [E, K, N] where the model multiplies x @ W; which of them follows
//         from all projections of the layer's experts (stack_layout.h). <module>_bias or .bias [E, N].
// Errors  InvalidArgument BAD_CHECKPOINT for shapes that the config does not explain; Unimplemented UNSUPPORTED_FORMAT
//         where nothing tells the layout.
// Threads Pure functions of the files.
#ifndef GEMMD_CORE_CHECKPOINT_PLAIN_EXPERTS_H_
#define GEMMD_CORE_CHECKPOINT_PLAIN_EXPERTS_H_

#include "absl/status/statusor.h"
#include "core/checkpoint/checkpoint_files.h"
#include "core/checkpoint/module_tensors.h"
#include "core/quant/standard_tensor.h"

namespace gemmd {

// Whether the module holds experts in one tensor, by its name or its shape.
bool IsPlainStack(const ModuleTensors& tensors);

absl::StatusOr<StandardTensor> ReadPlainStack(const CheckpointFiles& files, ModuleTensors& tensors);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_PLAIN_EXPERTS_H_
