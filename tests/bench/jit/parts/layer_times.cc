#include "tests/bench/jit/parts/layer_times.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status.h"
#include "kernels/jit/kernel_cache.h"
#include "kernels/layer_programs.h"
#include "tests/bench/jit/parts/subjects.h"

namespace gemmd::jit_bench {
namespace {

constexpr double kLayerBar = 2000;
constexpr int kBarCores = 16;

// Answers that are due.
class Answers {
 public:
  void Expect(size_t count) {
    MutexLock lock(mutex_);
    due_ += count;
  }
  void Take(const absl::Status& status) {
    MutexLock lock(mutex_);
    if (first_error_.ok()) first_error_ = status;
    if (--due_ == 0) changed_.NotifyAll();
  }
  absl::Status Await() {
    MutexLock lock(mutex_);
    changed_.WaitUntil(mutex_, absl::InfiniteFuture(),
                       [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return due_ == 0; });
    return first_error_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  size_t due_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status first_error_ ABSL_GUARDED_BY(mutex_);
};

// `answers` lives until all have come.
void AskAll(jit::KernelCache& cache, const std::vector<jit::KernelSource>& sources,
            jit::CompilePriority priority, Answers& answers) {
  answers.Expect(sources.size());
  for (const jit::KernelSource& source : sources) {
    cache.Ask(source, priority, [&answers](const auto& kernel) { answers.Take(kernel.status()); });
  }
}

absl::Status CompileAll(jit::KernelCache& cache, const std::vector<jit::KernelSource>& sources,
                        jit::CompilePriority priority) {
  Answers answers;
  AskAll(cache, sources, priority, answers);
  return answers.Await();
}

std::vector<jit::KernelSource> EmptyKernels(const Setup& setup) {
  std::vector<jit::KernelSource> sources;
  for (int i = 0; i < setup.workers; ++i) {
    sources.push_back(Variant({"__global__ void Empty() {}\n", "Empty", setup.architecture}, i));
  }
  return sources;
}

// A cache with an empty directory.
struct FreshCache {
  explicit FreshCache(const Setup& setup)
      : directory(setup.scratch),
        opened(jit::KernelCache::Open(jit::KernelCacheOptions{
            .directory = directory.path(), .helper = setup.helper, .workers = setup.workers})) {}
  // Every worker has its helper process then.
  absl::Status StartHelpers(const Setup& setup) {
    GEMMD_RETURN_IF_ERROR(opened.status());
    return CompileAll(**opened, EmptyKernels(setup), jit::CompilePriority::kClient);
  }
  ScratchDirectory directory;
  absl::StatusOr<std::unique_ptr<jit::KernelCache>> opened;
};

absl::StatusOr<double> AtOnce(const Setup& setup, const LayerWork& work, bool helpers_run) {
  FreshCache cache(setup);
  GEMMD_RETURN_IF_ERROR(cache.opened.status());
  if (helpers_run) GEMMD_RETURN_IF_ERROR(cache.StartHelpers(setup));
  std::vector<jit::KernelSource> sources = work.generic;
  sources.insert(sources.end(), work.specialised.begin(), work.specialised.end());
  const Stopwatch watch;
  GEMMD_RETURN_IF_ERROR(CompileAll(**cache.opened, sources, jit::CompilePriority::kClient));
  return watch.milliseconds();
}

struct DaemonTimes {
  double ready = 0;
  double complete = 0;
};

// The order of GpuKernels::PlanLayer.
absl::StatusOr<DaemonTimes> AsTheDaemon(const Setup& setup, const LayerWork& work) {
  Answers generic;
  Answers specialised;
  FreshCache cache(setup);  // answers what is due before it goes
  GEMMD_RETURN_IF_ERROR(cache.StartHelpers(setup));
  DaemonTimes times;
  const Stopwatch watch;
  for (const jit::KernelSource& source : MoeSources(setup.architecture)) {
    (void)(*cache.opened)->GetOrCompile(source, absl::InfinitePast());
  }
  AskAll(**cache.opened, work.generic, jit::CompilePriority::kClient, generic);
  AskAll(**cache.opened, work.specialised, jit::CompilePriority::kSpecialise, specialised);
  GEMMD_RETURN_IF_ERROR(generic.Await());
  times.ready = watch.milliseconds();
  GEMMD_RETURN_IF_ERROR(specialised.Await());
  times.complete = watch.milliseconds();
  return times;
}

class LayerMeasurement {
 public:
  LayerMeasurement(const Setup& setup, std::string format, Log& log)
      : setup_(setup),
        format_(std::move(format)),
        work_(WorkOf(format_, setup.architecture)),
        log_(log) {
    if (work_.ok()) {
      note_ = absl::StrCat(work_->generic.size(), " generic and ", work_->specialised.size(),
                           " specialised kernels, ", setup.workers, " workers");
    }
  }

  void AddAtOnce(const char* what, bool helpers_run) {
    Add(what, kLayerBar, SampleLayer([&] { return AtOnce(setup_, *work_, helpers_run); }));
  }

  void AddAsTheDaemon() {
    std::vector<double> ready;
    const auto complete = SampleLayer([&]() -> absl::StatusOr<double> {
      GEMMD_ASSIGN_OR_RETURN(const DaemonTimes times, AsTheDaemon(setup_, *work_));
      ready.push_back(times.ready);
      return times.complete;
    });
    Add("layer, READY", 0, complete.ok() ? bench::Summarize(ready) : complete);
    Add("layer, behind READY", kLayerBar, complete);
  }

 private:
  absl::StatusOr<bench::Summary> SampleLayer(
      const std::function<absl::StatusOr<double>()>& measure) const {
    if (!work_.ok()) return work_.status();
    return Sample(setup_.layer_samples, measure);
  }

  void Add(const char* what, double bar, const absl::StatusOr<bench::Summary>& value) {
    log_.Add({.part = "b",
              .what = what,
              .subject = format_,
              .unit = "ms",
              .value = {},
              .bar = bar,
              .bar_cores = bar > 0 ? kBarCores : 0,
              .note = note_},
             value);
  }

  const Setup& setup_;
  const std::string format_;
  const absl::StatusOr<LayerWork> work_;
  std::string note_;
  Log& log_;
};

}  // namespace

void MeasureLayers(const Setup& setup, Log& log) {
  for (const std::string& format : LayerFormats()) {
    LayerMeasurement layer(setup, format, log);
    layer.AddAtOnce("layer at once, running helpers", /*helpers_run=*/true);
    layer.AddAtOnce("layer at once, helpers started", /*helpers_run=*/false);
    layer.AddAsTheDaemon();
  }
}

}  // namespace gemmd::jit_bench
