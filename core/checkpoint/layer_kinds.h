// What    The kinds of layers among a model's modules. Who needs formats and shapes only, and not the weights, reads
//         one module of each: seconds instead of the time that hundreds of gigabytes take.
// Kind    Modules are of one kind when their names differ in numbers only, the same part of them is asked for, and
//         their tensors, in all their parts, have the same names, types and shapes, the config says the same of
//         them, and a g_idx orders their columns in all of them or in none. The g_idx of every module is read for
//         that, K numbers each.
// Limits  What only other numbers in the files tell, the first module of a kind tells for all: whether factors of x
//         (pre_quant_scale) are all 1 or fold into the scales, whether parts have the same scale per tensor. Of
//         experts that are stored one by one, the first tells it for the stack.
// Errors  As Checkpoint::ReadLayer, about the first module of a kind; Cancelled.
// Threads A pure function of the files.
#ifndef GEMMD_CORE_CHECKPOINT_LAYER_KINDS_H_
#define GEMMD_CORE_CHECKPOINT_LAYER_KINDS_H_

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/model_plan.h"
#include "kernels/contract/layer_traits.h"
#include "kernels/contract/quant_spec.h"

namespace gemmd {

struct LayerKind {
  int modules = 0;  // of the kind
  QuantSpec spec;
  LayerShape shape;
  LayerTraits traits;
};

// In the order of their first modules. `cancelled` is asked while bytes are read. With `quantize` they are those of
// layers that are quantized to it.
absl::StatusOr<std::vector<LayerKind>> LayerKindsOf(const Checkpoint& checkpoint,
                                                    const std::vector<PlannedModule>& modules,
                                                    const std::function<bool()>& cancelled,
                                                    const QuantizeTarget* quantize = nullptr);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_LAYER_KINDS_H_
