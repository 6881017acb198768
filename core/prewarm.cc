#include "core/prewarm.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/layer_kinds.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

template <typename Item>
void AddNew(Item item, std::vector<Item>& items) {
  if (std::find(items.begin(), items.end(), item) == items.end()) items.push_back(std::move(item));
}

void AddLayer(const PrewarmLayer& layer, PrewarmPlan& plan, int count = 1) {
  plan.named += count;
  AddNew(layer, plan.layers);
}

// What is asked of one checkpoint.
struct Question {
  const std::string& path;
  const std::optional<QuantizeTarget>& quantize;
  const std::vector<std::filesystem::path>& roots;
  const std::function<bool()>& cancelled;
};

// `choose` makes a list of modules of the open checkpoint.
template <typename Choose>
absl::Status AddModules(const Question& question, Choose choose, PrewarmPlan& plan) {
  const QuantizeTarget* const quantize = question.quantize.has_value() ? &*question.quantize : nullptr;
  if (quantize != nullptr) GEMMD_RETURN_IF_ERROR(Annotate(CheckTarget(*quantize), "quantize"));
  GEMMD_ASSIGN_OR_RETURN(const std::filesystem::path directory,
                         ResolveCheckpointPath(question.path, question.roots));
  GEMMD_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(directory, question.roots));
  GEMMD_ASSIGN_OR_RETURN(const std::vector<PlannedModule> modules, choose(*checkpoint));
  GEMMD_ASSIGN_OR_RETURN(const std::vector<LayerKind> kinds,
                         LayerKindsOf(*checkpoint, modules, question.cancelled, quantize));
  for (const LayerKind& kind : kinds) {
    AddLayer({kind.spec, kind.shape, kind.traits}, plan, kind.modules);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<PlannedModule>> Chosen(const Checkpoint& checkpoint,
                                                  const ModelSelection& selection,
                                                  std::vector<std::string>& notes) {
  GEMMD_ASSIGN_OR_RETURN(ModelPlan plan, PlanModel(checkpoint, selection));
  for (const std::string& pattern : plan.unmatched_exclude) {
    notes.push_back(absl::StrCat("exclude \"", pattern, "\" matches none of the chosen modules"));
  }
  notes.insert(notes.end(), plan.notes.begin(), plan.notes.end());
  for (const HiddenFile& file : plan.hidden_files) {
    notes.push_back(absl::StrCat("what lies in a file that cannot be read is left out: ",
                                 file.status.message()));
  }
  return std::move(plan.modules);
}

absl::StatusOr<std::vector<PlannedModule>> Named(const Checkpoint& checkpoint,
                                                 const CheckpointSource& source) {
  std::vector<std::string> none;  // of a selection that leaves nothing out and joins nothing
  if (source.module.empty()) return Chosen(checkpoint, {}, none);
  return std::vector<PlannedModule>{{source.module, source.slice}};
}

absl::Status FindArchitectures(const PrewarmJob& job, const Node& node, PrewarmPlan& plan) {
  for (const DeviceStatus& device : node.Status().devices) {
    if (device.description.kind != DeviceKind::kCuda) continue;
    plan.gpus.push_back({device.description.architecture, device.description.name,
                         device.description.multiprocessors});
  }
  for (const std::string& architecture : job.architectures) {
    AddNew(architecture, plan.architectures);
  }
  if (!plan.architectures.empty()) return absl::OkStatus();
  for (const PrewarmGpu& gpu : plan.gpus) AddNew(gpu.architecture, plan.architectures);
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
    const auto named = [&](const Checkpoint& checkpoint) { return Named(checkpoint, source); };
    GEMMD_RETURN_IF_ERROR(AddModules({source.path, source.quantize, roots, cancelled}, named, plan));
  }
  for (const ModelModules& model : job.models) {
    const auto chosen = [&](const Checkpoint& checkpoint) {
      return Chosen(checkpoint, model.selection, plan.notes);
    };
    GEMMD_RETURN_IF_ERROR(AddModules({model.path, model.quantize, roots, cancelled}, chosen, plan));
  }
  return plan;
}

}  // namespace gemmd
