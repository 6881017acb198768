#include "core/prewarm.h"

#include <algorithm>
#include <utility>

#include "core/checkpoint/checkpoint.h"
#include "core/quant/input_scale.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

template <typename Item>
void AddNew(Item item, std::vector<Item>& items) {
  if (std::find(items.begin(), items.end(), item) == items.end()) items.push_back(std::move(item));
}

void AddLayer(const PrewarmLayer& layer, PrewarmPlan& plan) {
  ++plan.named;
  AddNew(layer, plan.layers);
}

absl::Status AddCheckpoint(const CheckpointSource& source,
                           const std::vector<std::filesystem::path>& roots,
                           const std::function<bool()>& cancelled, PrewarmPlan& plan) {
  GEMMD_ASSIGN_OR_RETURN(const std::filesystem::path directory,
                         ResolveCheckpointPath(source.path, roots));
  GEMMD_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(directory, roots));
  std::vector<std::string> modules = {source.module};
  if (source.module.empty()) {
    GEMMD_ASSIGN_OR_RETURN(modules, checkpoint->ListModules());
  }
  const ProgressFunction go_on = [&cancelled](uint64_t, uint64_t) { return !cancelled(); };
  for (const std::string& module : modules) {
    GEMMD_ASSIGN_OR_RETURN(const CheckpointLayer layer, checkpoint->ReadLayer(module, go_on));
    AddLayer({layer.tensor.spec, layer.tensor.shape, TraitsOf(layer.tensor)}, plan);
  }
  return absl::OkStatus();
}

absl::Status FindArchitectures(const PrewarmJob& job, const Node& node, PrewarmPlan& plan) {
  for (const std::string& architecture : job.architectures) {
    AddNew(architecture, plan.architectures);
  }
  if (!plan.architectures.empty()) return absl::OkStatus();
  for (const DeviceStatus& device : node.Status().devices) {
    if (device.description.kind != DeviceKind::kCuda) continue;
    AddNew(device.description.architecture, plan.architectures);
  }
  if (!plan.architectures.empty()) return absl::OkStatus();
  return Error(absl::StatusCode::kFailedPrecondition, "NO_ARCHITECTURE",
               "this node has no GPU: say for which architecture, for example sm_90a");
}

}  // namespace

absl::StatusOr<PrewarmPlan> ResolvePrewarm(const PrewarmJob& job, const Node& node,
                                           const std::vector<std::filesystem::path>& roots,
                                           const std::function<bool()>& cancelled) {
  PrewarmPlan plan;
  plan.rows = job.rows;
  GEMMD_RETURN_IF_ERROR(FindArchitectures(job, node, plan));
  for (const PrewarmLayer& layer : job.layers) AddLayer(layer, plan);
  if (job.running_layers) {
    for (const LayerInfo& layer : node.ListAllLayers()) {
      AddLayer({layer.spec, layer.shape, layer.traits}, plan);
    }
  }
  for (const CheckpointSource& source : job.checkpoints) {
    GEMMD_RETURN_IF_ERROR(AddCheckpoint(source, roots, cancelled, plan));
  }
  return plan;
}

}  // namespace gemmd
