// What    Which kernels to have before they are needed: from checkpoints, from the layers that the
//         node holds, or as given; for the node's GPUs or for other architectures. KernelStore
//         (kernels/kernel_store.h) does the compiling; the server knows it through this header.
// Errors  As ReadLayer for a checkpoint; Cancelled; FailedPrecondition NO_ARCHITECTURE: none is
//         given and the node has no GPU.
// Threads Functions of their arguments. ResolvePrewarm reads one module of each kind
//         (core/checkpoint/layer_kinds.h): seconds.
#ifndef GEMMD_CORE_PREWARM_H_
#define GEMMD_CORE_PREWARM_H_

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/checkpoint/model_plan.h"
#include "core/node.h"
#include "core/types.h"
#include "kernels/kernel_store.h"

namespace gemmd {

struct ModelModules {
  std::string path;
  ModelSelection selection;
  std::optional<QuantizeTarget> quantize = std::nullopt;  // as workers register them
};

struct PrewarmJob {
  std::vector<std::string> architectures;
  std::vector<CheckpointSource> checkpoints;  // an empty module: every quantized module, whole
  std::vector<ModelModules> models;
  std::vector<PrewarmLayer> layers;
  bool running_layers = false;
  std::vector<RowRange> rows;  // of the requests to come; empty = any number
};

struct PrewarmPlan {
  std::vector<PrewarmLayer> layers;  // distinct: of one format and shape there is one
  int named = 0;                     // layers, before equal ones became one
  std::vector<std::string> architectures;
  std::vector<RowRange> rows;
  std::vector<std::string> notes;  // sentences about the modules that were chosen
  std::vector<PrewarmGpu> gpus;    // the node's
};

// `cancelled` is asked now and then.
absl::StatusOr<PrewarmPlan> ResolvePrewarm(const PrewarmJob& job, const Node& node,
                                           const std::vector<std::filesystem::path>& roots,
                                           const std::function<bool()>& cancelled);

}  // namespace gemmd

#endif  // GEMMD_CORE_PREWARM_H_
