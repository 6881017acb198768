// What    Whether the files hold what the model's other layers and its config promise: the layers that
//         num_hidden_layers counts, and both ends of an attention or MLP, q_proj with o_proj, up_proj with down_proj.
// Errors  InvalidArgument BAD_CHECKPOINT, one for every place that lacks something.
// Threads Pure functions of the files.
#ifndef GEMMD_CORE_CHECKPOINT_MODEL_LAYERS_H_
#define GEMMD_CORE_CHECKPOINT_MODEL_LAYERS_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/checkpoint/checkpoint_files.h"

namespace gemmd {

// Whether a call asks for the module of this name, if there were one.
using WantedFunction = std::function<bool(const std::string& module)>;

// Layers below num_hidden_layers without a matrix while others have some. `modules` are those that the checkpoint
// lists; a layer counts only if one of the modules that another layer has would be wanted of it. A model whose
// config explains an empty layer (block_configs) or that shares layers (num_hidden_groups) lacks none.
std::vector<absl::Status> CheckLayers(const CheckpointFiles& files,
                                      const std::vector<std::string>& modules,
                                      const WantedFunction& wanted);

// Places that have one end of an attention or an MLP while another place of the same role has the same modules and
// the other end too. A place that is made differently, as in models that mix kinds of layers, is none.
std::vector<absl::Status> CheckProjections(const CheckpointFiles& files,
                                           const std::vector<std::string>& modules,
                                           const WantedFunction& wanted);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_MODEL_LAYERS_H_
