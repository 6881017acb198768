// What    Experts in one tensor that is not quantized, as the standard representation has them: [E, N, K].
// Layout  <module> or <module>.weight: [E, N, K], or [E, K, N] where the model multiplies x @ W; which of them follows
//         from the module's name, the model and its sizes (README.md, "unquantized"). <module>_bias or .bias [E, N].
// Errors  InvalidArgument BAD_CHECKPOINT for shapes that the config does not explain; Unimplemented UNSUPPORTED_FORMAT
//         where the config does not tell the layout.
// Threads Pure functions.
#ifndef GEMMD_CORE_CHECKPOINT_PLAIN_EXPERTS_H_
#define GEMMD_CORE_CHECKPOINT_PLAIN_EXPERTS_H_

#include "absl/status/statusor.h"
#include "core/checkpoint/model_facts.h"
#include "core/checkpoint/module_tensors.h"
#include "core/quant/standard_tensor.h"

namespace gemmd {

// Whether the module holds experts in one tensor, by its name or its shape.
bool IsPlainStack(const ModuleTensors& tensors);

absl::StatusOr<StandardTensor> ReadPlainStack(const ModelFacts& facts, ModuleTensors& tensors);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_PLAIN_EXPERTS_H_
