// What    ModelOpt stacks of experts: one tensor [E, ...] of each kind, cut into one module per expert
//         that the readers of single modules read.
// Layout  `<module>` or `<module>.weight` with <module>_weight_scale, ... or <module>.weight_scale, ...:
//         [E, N, K], or [E, K, N] as the experts of Llama-4 and gpt-oss multiply (README.md).
// Errors  InvalidArgument BAD_CHECKPOINT; Unimplemented UNSUPPORTED_FORMAT for quantization along the
//         wrong axis.
#ifndef GEMMD_CORE_CHECKPOINT_MODELOPT_STACK_H_
#define GEMMD_CORE_CHECKPOINT_MODELOPT_STACK_H_

#include <functional>

#include "absl/status/statusor.h"
#include "core/checkpoint/modelopt.h"
#include "core/checkpoint/module_tensors.h"
#include "core/quant/standard_tensor.h"

namespace gemmd {

bool IsModelOptStack(const ModuleTensors& tensors);

// `read` reads the module of one expert: .weight [N, K], .weight_scale and so on.
absl::StatusOr<StandardTensor> ReadModelOptStack(
    const ModelOptScheme& scheme, ModuleTensors& tensors,
    const std::function<absl::StatusOr<StandardTensor>(ModuleTensors&)>& read);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_MODELOPT_STACK_H_
