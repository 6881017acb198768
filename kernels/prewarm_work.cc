#include "kernels/prewarm_work.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/contract/element_format.h"
#include "kernels/jit/kernel_cache.h"
#include "kernels/layer_programs.h"
#include "kernels/prewarm_target.h"
#include "kernels/tune/tuning_store.h"

namespace gemmd {
namespace {

using PointsByType = std::map<std::string, std::vector<MeasuredPoint>>;  // by name of x's type

bool IsOf(const DeviceClass& device, const PrewarmGpu& gpu) {
  return device.name == gpu.name && device.multiprocessors == gpu.multiprocessors;
}

// What was measured of a layer, on each kind of GPU.
std::map<DeviceClass, PointsByType> MeasuredOf(const PrewarmLayer& layer,
                                               const std::vector<StoredTuning>& tunings) {
  std::map<DeviceClass, PointsByType> measured;
  for (const StoredTuning& tuning : tunings) {
    const TuningKey& key = tuning.entry.key;
    if (tuning.is_stale || key.n != layer.shape.n || key.k != layer.shape.k) continue;
    if (key.spec != SpecText(layer.spec)) continue;
    // What was measured here comes first, and goes before what ships.
    measured[key.device].emplace(key.x_type, tuning.entry.points);
  }
  return measured;
}

Measurements MeasurementsOf(PointsByType points) {
  return {[points = std::move(points)](ElementType x_type) {
    const auto found = points.find(ElementTypeName(x_type));
    return found == points.end() ? std::vector<MeasuredPoint>() : found->second;
  }};
}

// One for each kind of GPU that the layer may be loaded on: those of the node, if it has some of the architecture;
// else any, those where nothing was measured among them.
std::vector<Measurements> AimsOf(const PrewarmLayer& layer, const std::string& architecture,
                                 const std::vector<StoredTuning>& tunings,
                                 const std::vector<PrewarmGpu>& gpus) {
  const std::map<DeviceClass, PointsByType> measured = MeasuredOf(layer, tunings);
  std::vector<Measurements> aims;
  bool model = true;  // whether nothing was measured of one of them
  const bool here = std::any_of(gpus.begin(), gpus.end(), [&](const PrewarmGpu& gpu) {
    return gpu.architecture == architecture;
  });
  if (here) {
    model = std::any_of(gpus.begin(), gpus.end(), [&](const PrewarmGpu& gpu) {
      return gpu.architecture == architecture &&
             std::none_of(measured.begin(), measured.end(),
                          [&](const auto& entry) { return IsOf(entry.first, gpu); });
    });
  }
  if (model) aims.push_back({});
  for (const auto& [device, points] : measured) {
    const bool is_meant = !here || std::any_of(gpus.begin(), gpus.end(), [&](const PrewarmGpu& gpu) {
      return gpu.architecture == architecture && IsOf(device, gpu);
    });
    if (is_meant) aims.push_back(MeasurementsOf(points));
  }
  return aims;
}

void AddPrograms(std::vector<jit::KernelSource> programs, std::set<std::string>& seen,
                 PrewarmWork& work) {
  for (jit::KernelSource& program : programs) {
    const std::string identity =
        absl::StrCat(program.architecture, "\n", program.name_expression, "\n", program.program);
    if (seen.insert(identity).second) work.programs.push_back(std::move(program));
  }
}

PrewarmStep NoKernel(const PrewarmLayer& layer, const std::string& architecture,
                     const absl::Status& why) {
  PrewarmStep step;
  step.architecture = architecture;
  step.kernel = absl::StrCat("layer ", layer.shape.experts, "x", layer.shape.n, "x", layer.shape.k);
  step.outcome = PrewarmOutcome::kNoKernel;
  step.message = std::string(why.message());
  return step;
}

// What the compiler compiles for; empty without one.
absl::StatusOr<std::vector<int>> KnownTo(jit::KernelCache& cache) {
  const absl::StatusOr<std::vector<int>> known = cache.Architectures();
  if (ReasonOf(known.status()) == "NVRTC_MISSING") return std::vector<int>();
  return known;
}

absl::StatusOr<PrewarmWork> PlanFor(const std::vector<int>& known,
                                    const std::vector<PrewarmLayer>& layers,
                                    const std::vector<std::string>& architectures,
                                    const std::vector<RowRange>& rows,
                                    const PrewarmTuning& tuning) {
  const std::vector<StoredTuning> tunings =
      tuning.store == nullptr ? std::vector<StoredTuning>() : tuning.store->List();
  PrewarmWork work;
  std::set<std::string> seen;
  for (const std::string& architecture : architectures) {
    GEMMD_RETURN_IF_ERROR(CheckDeviceName(architecture, known));
    bool any = false;
    for (const PrewarmLayer& layer : layers) {
      for (const Measurements& aim : AimsOf(layer, architecture, tunings, tuning.gpus)) {
        auto programs =
            LayerSources(layer.spec, layer.shape, architecture, rows, layer.traits, aim);
        if (!programs.ok()) {  // with every aim
          work.impossible.push_back(NoKernel(layer, architecture, programs.status()));
          break;
        }
        any = true;
        AddPrograms(*std::move(programs), seen, work);
      }
    }
    if (!any && !layers.empty()) continue;  // the layers' reasons say more
    GEMMD_RETURN_IF_ERROR(CheckPrewarmTarget(architecture, known));
    if (!any) continue;
    AddPrograms(MoeSources(architecture), seen, work);
  }
  return work;
}

}  // namespace

absl::StatusOr<PrewarmWork> PlanPrewarm(jit::KernelCache& cache,
                                        const std::vector<PrewarmLayer>& layers,
                                        const std::vector<std::string>& architectures,
                                        const std::vector<RowRange>& rows,
                                        const PrewarmTuning& tuning) {
  GEMMD_ASSIGN_OR_RETURN(const std::vector<int> known, KnownTo(cache));
  absl::StatusOr<PrewarmWork> work = PlanFor(known, layers, architectures, rows, tuning);
  if (ReasonOf(work.status()) != "BAD_ARCHITECTURE") return work;
  cache.LookForCompiler();
  GEMMD_ASSIGN_OR_RETURN(const std::vector<int> now_known, KnownTo(cache));
  return now_known == known ? work : PlanFor(now_known, layers, architectures, rows, tuning);
}

}  // namespace gemmd
