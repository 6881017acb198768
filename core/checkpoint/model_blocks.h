// What    Whether a layer lacks its whole attention, its whole MLP, or all of its experts, which the layers like it have.
// Alike   Layers of one stack that have everything this one has, and maybe more; where the config lists them
//         (layer_types), of its type. A layer with something of its own (mamba instead of attention, a dense MLP
//         instead of experts) so has none like it, and is made differently.
// Errors  InvalidArgument BAD_CHECKPOINT, one for every layer that lacks something which all layers like it have, two
//         at least. Two layers that lack the same are a kind of their own. None of a model whose config leaves parts of
//         layers out (block_configs).
// Threads Pure functions of the names of tensors.
#ifndef GEMMD_CORE_CHECKPOINT_MODEL_BLOCKS_H_
#define GEMMD_CORE_CHECKPOINT_MODEL_BLOCKS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/checkpoint/checkpoint_files.h"
#include "core/checkpoint/model_layers.h"

namespace gemmd {

// `modules` are those that the checkpoint lists; what is missing counts only if one of its modules would be wanted.
std::vector<absl::Status> CheckBlocks(const CheckpointFiles& files,
                                      const std::vector<std::string>& modules,
                                      const WantedFunction& wanted);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_MODEL_BLOCKS_H_
