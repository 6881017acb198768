#include "kernels/prewarm_run.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status.h"
#include "kernels/jit/cache_entry.h"
#include "kernels/jit/kernel_cache.h"

namespace gemmd {
namespace {

// Counts steps, passes them on one at a time, and tells how the whole ends.
class Reporter {
 public:
  Reporter(int total, const PrewarmWatch& watch) : total_(total), watch_(watch) {}

  void Report(PrewarmStep step) {
    MutexLock lock(mutex_);
    step.done = ++done_;
    step.total = total_;
    if (step.outcome == PrewarmOutcome::kNotStored && ++not_stored_ == 1) why_ = step.message;
    if (!cancelled_ && !watch_.progress(step)) cancelled_ = true;
  }
  void Cancel() { cancelled_ = true; }
  bool cancelled() {
    if (watch_.cancelled && watch_.cancelled()) cancelled_ = true;
    return cancelled_;
  }
  void CountUncompiled() { ++uncompiled_; }

  // `compiler`: why there is none, if so.
  absl::Status Result(const absl::Status& compiler) const {
    if (cancelled_) return absl::CancelledError("the prewarm was cancelled");
    if (uncompiled_ > 0) {
      return Error(absl::StatusCode::kUnavailable, "NVRTC_MISSING",
                   absl::StrCat(uncompiled_.load(), " of ", total_,
                                " kernels are not in the cache, and nothing here can compile them: ",
                                compiler.message()));
    }
    MutexLock lock(mutex_);
    if (not_stored_ == 0) return absl::OkStatus();
    return Error(absl::StatusCode::kUnavailable, "CACHE_WRITE",
                 absl::StrCat(not_stored_, " of ", total_,
                              " kernels are not in the cache's directory; the first: ", why_));
  }

 private:
  const int total_;
  const PrewarmWatch& watch_;
  mutable Mutex mutex_;
  int not_stored_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string why_ ABSL_GUARDED_BY(mutex_);  // of the first
  int done_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<int> uncompiled_{0};
  std::atomic<bool> cancelled_{false};
};

class Run {
 public:
  Run(jit::KernelCache& cache, const PrewarmWork& work, const PrewarmWatch& watch,
      std::map<std::string, uint64_t>& sizes)
      : cache_(cache),
        work_(work),
        reporter_(static_cast<int>(work.programs.size() + work.impossible.size()), watch),
        compiler_(work.programs.empty() ? absl::OkStatus() : cache.Compiler().status()),
        sizes_(sizes) {}

  absl::Status Finish() {
    for (const PrewarmStep& step : work_.impossible) reporter_.Report(step);
    if (!compiler_.ok() && !HasNone()) return compiler_;
    if (HasNone()) cache_.LookAgain();
    std::vector<std::thread> threads;
    const size_t others =
        std::min(work_.programs.size(), static_cast<size_t>(jit::UsableProcessors()));
    for (size_t i = 1; i < others; ++i) threads.emplace_back([this] { Work(); });
    Work();
    for (std::thread& thread : threads) thread.join();
    return reporter_.Result(compiler_);
  }

 private:
  bool HasNone() const { return ReasonOf(compiler_) == "NVRTC_MISSING"; }

  void Work() {
    for (size_t i = next_++; i < work_.programs.size() && !reporter_.cancelled(); i = next_++) {
      absl::StatusOr<PrewarmStep> step =
          HasNone() ? Find(work_.programs[i]) : Compile(work_.programs[i]);
      if (!step.ok()) return reporter_.Cancel();
      reporter_.Report(*std::move(step));
    }
  }

  // Cancelled: by the reporter, or the cache is closed.
  absl::StatusOr<PrewarmStep> Compile(const jit::KernelSource& program) {
    jit::KernelOrigin origin = jit::KernelOrigin::kCompiled;
    const absl::Time start = absl::Now();
    const auto kernel = cache_.GetOrCompile(
        program, jit::CompileRequest{.priority = jit::CompilePriority::kPrewarm,
                                     .cancelled = [this] { return reporter_.cancelled(); },
                                     .origin = &origin});
    if (absl::IsCancelled(kernel.status())) return kernel.status();
    PrewarmStep step = StepOf(program, absl::Now() - start);
    if (!kernel.ok()) {
      step.outcome = PrewarmOutcome::kFailed;
      step.message = std::string(kernel.status().message());
      return step;
    }
    if (origin == jit::KernelOrigin::kCompiled) step.outcome = PrewarmOutcome::kCompiled;
    Keep(**kernel, origin == jit::KernelOrigin::kDisk, step);
    return step;
  }

  PrewarmStep Find(const jit::KernelSource& program) {
    PrewarmStep step = StepOf(program, absl::ZeroDuration());
    bool on_disk = false;
    const jit::SharedKernel kernel = cache_.FindOfAnyCompiler(program, on_disk);
    if (kernel == nullptr) {
      reporter_.CountUncompiled();
      step.outcome = PrewarmOutcome::kFailed;
      step.message = "not in the cache, and there is no NVRTC to compile it";
      return step;
    }
    Keep(*kernel, on_disk, step);
    return step;
  }

  static PrewarmStep StepOf(const jit::KernelSource& program, absl::Duration took) {
    PrewarmStep step;
    step.kernel = program.label;
    step.architecture = program.architecture;
    step.took = took;
    return step;
  }

  // A kernel that came from the disk is there; any other must reach it.
  void Keep(const jit::CompiledKernel& kernel, bool on_disk, PrewarmStep& step) {
    const absl::Status stored = on_disk ? absl::OkStatus() : cache_.Store(kernel);
    if (stored.ok()) {
      MutexLock lock(mutex_);
      sizes_[kernel.key] = jit::EntryBytes(kernel);
      return;
    }
    step.message =
        absl::StrCat(step.outcome == PrewarmOutcome::kCompiled ? "compiled" : "in memory",
                     ", but not stored: ", stored.message());
    step.outcome = PrewarmOutcome::kNotStored;
  }

  jit::KernelCache& cache_;
  const PrewarmWork& work_;
  Reporter reporter_;
  const absl::Status compiler_;
  std::atomic<size_t> next_{0};
  Mutex mutex_;
  std::map<std::string, uint64_t>& sizes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::Status RunPrewarm(jit::KernelCache& cache, const PrewarmWork& work, const PrewarmWatch& watch,
                        std::map<std::string, uint64_t>& sizes) {
  return Run(cache, work, watch, sizes).Finish();
}

}  // namespace gemmd
