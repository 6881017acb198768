#include "core/tune.h"

#include "kernels/base/status.h"

namespace gemmd {

absl::StatusOr<std::vector<TuneLayer>> ResolveTune(const TuneJob& job, const Node& node,
                                                   const std::vector<std::filesystem::path>& roots,
                                                   const std::function<bool()>& cancelled) {
  PrewarmJob prewarm;
  prewarm.architectures = {"any"};  // layers are the same on all of them
  prewarm.checkpoints = job.checkpoints;
  prewarm.models = job.models;
  prewarm.running_layers = job.running_layers;
  for (const TuneLayer& layer : job.layers) prewarm.layers.push_back({layer.spec, layer.shape});
  GEMMD_ASSIGN_OR_RETURN(const PrewarmPlan plan, ResolvePrewarm(prewarm, node, roots, cancelled));
  std::vector<TuneLayer> layers;
  for (const PrewarmLayer& layer : plan.layers) layers.push_back({layer.spec, layer.shape});
  return layers;
}

}  // namespace gemmd
