// What    Which layers to tune: from checkpoints, from the layers that the node holds, or as given.
//         Node::Tune measures them; a TuningStore (kernels/tuning.h) keeps the results. The server knows
//         both through this header.
// Errors  As ResolvePrewarm.
// Threads A function of its arguments; it reads files, as ResolvePrewarm.
#ifndef GEMMD_CORE_TUNE_H_
#define GEMMD_CORE_TUNE_H_

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/node.h"
#include "core/prewarm.h"
#include "core/types.h"
#include "kernels/tuning.h"

namespace gemmd {

struct TuneJob {
  std::string device;                         // id; empty = the best GPU
  std::vector<CheckpointSource> checkpoints;  // as in PrewarmJob
  std::vector<ModelModules> models;
  std::vector<TuneLayer> layers;
  bool running_layers = false;
  TuneSettings settings;  // without its deadline
  absl::Duration time_limit = absl::InfiniteDuration();
};

// Distinct layers. `cancelled` is asked between modules.
absl::StatusOr<std::vector<TuneLayer>> ResolveTune(const TuneJob& job, const Node& node,
                                                   const std::vector<std::filesystem::path>& roots,
                                                   const std::function<bool()>& cancelled);

}  // namespace gemmd

#endif  // GEMMD_CORE_TUNE_H_
