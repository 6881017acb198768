#include "kernels/layer_tuner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status.h"
#include "kernels/contract/element_format.h"
#include "kernels/cuda/launch.h"
#include "kernels/launch/gemm_launch.h"
#include "kernels/layer_programs.h"

namespace gemmd {
namespace {

constexpr uint64_t kFlushBytes = uint64_t{512} << 20;

absl::Status OutOfTime() {
  return Error(absl::StatusCode::kDeadlineExceeded, "TIME_LIMIT", "the time limit came first");
}

bool IsOutOfTime(const absl::Status& status) {
  return absl::IsDeadlineExceeded(status) && ReasonOf(status) == "TIME_LIMIT";
}

// Whether every further point would meet the same.
bool EndsTuning(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsCancelled(status) || absl::IsUnavailable(status);
}

TuningControl WithDeadline(const TuningControl& control, absl::Time deadline) {
  TuningControl both = control;
  both.wait = [wait = control.wait, deadline]() -> absl::Status {
    if (absl::Now() >= deadline) return OutOfTime();
    return wait ? wait() : absl::OkStatus();
  };
  return both;
}

std::string DriverText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

TuneStep StepOf(const QuantSpec& spec, const LayerShape& shape) {
  TuneStep step;
  step.shape = shape;
  step.spec = SpecText(spec);
  return step;
}

void AddLine(std::string& text, absl::string_view line) {
  absl::StrAppend(&text, text.empty() ? "" : "; ", line);
}

}  // namespace

jit::KernelSource EmptyKernel(const std::string& architecture) {
  return {"namespace gemmd::device {\n__global__ void Empty() {}\n}  // namespace gemmd::device\n",
          "gemmd::device::Empty", architecture, "empty"};
}

LayerTuner::LayerTuner(Parts parts, TuneSettings settings, const TuningControl& control)
    : parts_(std::move(parts)),
      settings_(std::move(settings)),
      control_(WithDeadline(control, settings_.deadline)) {
  if (settings_.rows.empty()) settings_.rows = DefaultTuningRows();
  if (settings_.flush_bytes == 0) {
    settings_.flush_bytes = std::max(kFlushBytes, 2 * parts_.l2_bytes);
  }
  (void)parts_.driver->cuDriverGetVersion(&driver_version_);  // 0 is as good a name as any
}

LayerTuner::~LayerTuner() {
  for (const uint64_t wish : wishes_) parts_.cache->Forget(wish);
}

absl::Status LayerTuner::GoOn() const {
  if (cancelled_) return absl::CancelledError("the client has gone");
  return control_.wait();
}

std::vector<Sm90Choice> LayerTuner::CandidatesOf(const Subject& subject, int64_t m) const {
  std::vector<Sm90Choice> candidates =
      Sm90CandidatesAt(subject.spec, subject.shape, subject.x_type, m);
  const auto most = static_cast<size_t>(settings_.candidates);
  if (candidates.size() > most) candidates.resize(most);
  return candidates;
}

std::vector<LayerTuner::Subject> LayerTuner::SubjectsOf(const TuneLayer& layer) const {
  std::vector<Subject> subjects;
  if (!SupportsSm90(layer.spec, layer.shape, parts_.architecture).ok()) return subjects;
  for (const ElementType x_type : Sm90XTypes(layer.spec)) {
    if (!subjects.empty() && !settings_.all_x_types) break;
    subjects.push_back({layer.spec, layer.shape, x_type});
  }
  return subjects;
}

// The compiler works on the next layer while this one is measured.
void LayerTuner::CompileAhead(const Subject& subject) {
  for (const int64_t m : settings_.rows) {
    for (const Sm90Choice& choice : CandidatesOf(subject, m)) {
      wishes_.push_back(parts_.cache->Ask(Sm90Program(choice, parts_.architecture).source,
                                          jit::CompilePriority::kTuning, [](const auto&) {}));
    }
  }
}

absl::Status LayerTuner::StartTimer() {
  if (timer_.has_value()) return absl::OkStatus();
  GEMMD_ASSIGN_OR_RETURN(const jit::SharedKernel compiled,
                         Compile(EmptyKernel(parts_.architecture)));
  GEMMD_ASSIGN_OR_RETURN(const cuda::LoadedLibrary library,
                         cuda::LoadedLibrary::Load(*parts_.driver, compiled->cubin));
  GEMMD_ASSIGN_OR_RETURN(const CUkernel kernel, library.GetKernel(compiled->lowered_name));
  GEMMD_ASSIGN_OR_RETURN(ColdTimer timer, ColdTimer::Create(*parts_.driver, settings_.flush_bytes));
  cuda::LaunchGrid grid;
  grid.block.x = 32;
  GEMMD_RETURN_IF_ERROR(timer.Calibrate([&] {
    return cuda::LaunchKernel(*parts_.driver, kernel, grid, timer.stream(), nullptr);
  }));
  timer_ = std::move(timer);
  return absl::OkStatus();
}

absl::Status LayerTuner::Tune(const std::vector<TuneLayer>& layers, const TuneProgress& progress) {
  progress_ = progress;
  std::vector<Subject> subjects;
  std::vector<TuneLayer> without;
  for (const TuneLayer& layer : layers) {
    const std::vector<Subject> found = SubjectsOf(layer);
    subjects.insert(subjects.end(), found.begin(), found.end());
    if (found.empty()) without.push_back(layer);
  }
  total_ = static_cast<int>(without.size() + settings_.rows.size() * subjects.size());
  for (const TuneLayer& layer : without) {
    TuneStep step = StepOf(layer.spec, layer.shape);
    step.outcome = TuneOutcome::kNoKernel;
    step.message =
        std::string(SupportsSm90(layer.spec, layer.shape, parts_.architecture).message());
    GEMMD_RETURN_IF_ERROR(Tell(std::move(step), 1));
  }
  for (size_t i = 0; i < subjects.size(); ++i) {
    if (i == 0) CompileAhead(subjects[i]);
    if (i + 1 < subjects.size()) CompileAhead(subjects[i + 1]);
    const int points = done_ + static_cast<int>(settings_.rows.size());
    const absl::Status status = TuneSubject(subjects[i]);
    loaded_.clear();
    if (IsOutOfTime(status)) return TellOutOfTime(subjects[i]);
    if (EndsTuning(status)) return status;
    if (!status.ok()) GEMMD_RETURN_IF_ERROR(TellFailure(subjects[i], 0, status, points - done_));
  }
  return absl::OkStatus();
}

absl::Status LayerTuner::TuneSubject(const Subject& subject) {
  GEMMD_RETURN_IF_ERROR(GoOn());
  GEMMD_RETURN_IF_ERROR(StartTimer());
  GEMMD_ASSIGN_OR_RETURN(
      const TuningWorkload workload,
      TuningWorkload::Create(*parts_.driver, subject.spec, subject.shape, subject.x_type,
                             settings_.rows.back()));
  for (const int64_t m : settings_.rows) {
    const absl::Status status = TunePoint(subject, workload, m);
    if (status.ok()) continue;
    if (EndsTuning(status) || IsOutOfTime(status)) return status;
    GEMMD_RETURN_IF_ERROR(TellFailure(subject, m, status, 1));
  }
  return absl::OkStatus();
}

absl::Status LayerTuner::TunePoint(const Subject& subject, const TuningWorkload& workload,
                                   int64_t m) {
  TuneStep step = StepOf(subject.spec, subject.shape);
  step.x_type = ElementTypeName(subject.x_type);
  GEMMD_ASSIGN_OR_RETURN(const std::vector<Lane> lanes, Load(subject, m, step.message));
  const GemmArgs args = workload.Args(m);
  std::vector<TunedLaunch> launches;
  for (const Lane& lane : lanes) {
    launches.push_back([&] { return LaunchDense(*parts_.driver, lane.launch, args, timer_->stream()); });
  }
  GEMMD_ASSIGN_OR_RETURN(const std::vector<LaneTimes> times,
                         Race(*timer_, launches, {.samples = settings_.samples}, control_));
  const int winner = Winner(times);
  for (size_t i = 0; i < lanes.size(); ++i) {
    if (times[i].status.ok()) continue;
    AddLine(step.message, absl::StrCat(lanes[i].launch.name, ": ", times[i].status.message()));
  }
  if (winner < 0) return absl::InternalError(absl::StrCat("no candidate ran: ", step.message));
  step.point = PointOf(m, lanes, times, static_cast<size_t>(winner));
  step.kernel = lanes[static_cast<size_t>(winner)].launch.name;
  if (step.point.model_choice_ns > 0) step.model_kernel = lanes.front().launch.name;
  const absl::Status kept = parts_.store->Put(EntryOf(subject, step.point));
  if (!kept.ok()) AddLine(step.message, absl::StrCat("not kept: ", kept.message()));
  return Tell(std::move(step), 1);
}

MeasuredPoint LayerTuner::PointOf(int64_t m, const std::vector<Lane>& lanes,
                                  const std::vector<LaneTimes>& times, size_t winner) const {
  const Sm90Choice& choice = lanes[winner].choice;
  MeasuredPoint point;
  point.m = m;
  point.tiling = TilingOf(choice);
  point.ns = times[winner].median;
  point.fastest_ns = times[winner].fastest;
  point.slowest_ns = times[winner].slowest;
  point.samples = times[winner].samples;
  for (const LaneTimes& lane : times) point.candidates += lane.status.ok() ? 1 : 0;
  if (lanes.front().is_model && times.front().status.ok()) {
    point.model_choice_ns = times.front().median;
  }
  const int clock_mhz = parts_.device.clock_mhz;
  if (clock_mhz > 0) point.model_ns = choice.model_cycles * 1000 / clock_mhz;
  return point;
}

absl::StatusOr<std::vector<LayerTuner::Lane>> LayerTuner::Load(const Subject& subject, int64_t m,
                                                               std::string& message) {
  std::vector<Lane> lanes;
  bool is_model = true;  // of the first
  for (const Sm90Choice& choice : CandidatesOf(subject, m)) {
    GEMMD_RETURN_IF_ERROR(GoOn());
    absl::StatusOr<GemmKernel> launch = LoadOne(subject, choice);
    const bool was_model = std::exchange(is_model, false);
    if (launch.ok()) {
      lanes.push_back({choice, *std::move(launch), was_model});
    } else if (EndsTuning(launch.status()) || IsOutOfTime(launch.status())) {
      return launch.status();
    } else {
      AddLine(message, absl::StrCat(KernelName(choice.config), ": ", launch.status().message()));
    }
  }
  if (!lanes.empty()) return lanes;
  return absl::InternalError(absl::StrCat("no candidate runs: ", message));
}

absl::StatusOr<jit::SharedKernel> LayerTuner::Compile(const jit::KernelSource& source) const {
  jit::CompileRequest request;
  request.deadline = settings_.deadline;
  request.priority = jit::CompilePriority::kTuning;
  request.cancelled = control_.cancelled;
  absl::StatusOr<jit::SharedKernel> compiled = parts_.cache->GetOrCompile(source, request);
  if (absl::IsDeadlineExceeded(compiled.status())) return OutOfTime();
  return compiled;
}

absl::StatusOr<GemmKernel> LayerTuner::LoadOne(const Subject& subject, const Sm90Choice& choice) {
  const GemmProgram program = Sm90Program(choice, parts_.architecture);
  GEMMD_ASSIGN_OR_RETURN(const jit::SharedKernel compiled, Compile(program.source));
  if (const auto record = parts_.cache->Quarantined(compiled->key, driver_version_)) {
    return Error(absl::StatusCode::kInternal, "KERNEL_QUARANTINED", record->why);
  }
  GemmKernel launch = program.launch;
  GEMMD_ASSIGN_OR_RETURN(launch.kernel, LoadKernel(*compiled, launch.dynamic_shared_bytes));
  GEMMD_RETURN_IF_ERROR(Test(subject, *compiled, launch));
  return launch;
}

absl::StatusOr<CUkernel> LayerTuner::LoadKernel(const jit::CompiledKernel& compiled,
                                                int shared_bytes) {
  const auto found = loaded_.find(compiled.key);
  if (found != loaded_.end()) return found->second.kernel;
  GEMMD_ASSIGN_OR_RETURN(cuda::LoadedLibrary library,
                         cuda::LoadedLibrary::Load(*parts_.driver, compiled.cubin));
  GEMMD_ASSIGN_OR_RETURN(const CUkernel kernel, library.GetKernel(compiled.lowered_name));
  CUdevice device;
  GEMMD_CUDA(*parts_.driver, cuCtxGetDevice, &device);
  GEMMD_RETURN_IF_ERROR(cuda::SetMaxDynamicShared(*parts_.driver, kernel, device, shared_bytes));
  loaded_.emplace(compiled.key, LoadedCandidate{std::move(library), kernel});
  return kernel;
}

// Each way to launch a kernel is tested: its cluster and its grid decide where sums come from.
absl::Status LayerTuner::Test(const Subject& subject, const jit::CompiledKernel& compiled,
                              const GemmKernel& launch) {
  if (parts_.tester == nullptr) return absl::OkStatus();
  const auto way = std::make_tuple(compiled.key, launch.cluster, launch.resident_clusters);
  if (tested_.count(way) != 0) return absl::OkStatus();
  SelfTestSubject test{.spec = subject.spec, .shape = subject.shape};
  test.is_packed = true;
  test.takes_group_scales = Sm90TakesXScales(subject.spec, subject.shape);
  test.x_type = subject.x_type;
  const absl::Status verdict = parts_.tester->Test(launch, test);
  if (verdict.ok()) {
    tested_.insert(way);
    return verdict;
  }
  if (!absl::IsDataLoss(verdict)) return verdict;  // another way to launch it may be right
  parts_.cache->Quarantine(compiled, driver_version_, verdict.message());
  return Error(absl::StatusCode::kDataLoss, "CONTEXT_LOST",
               absl::StrCat(launch.name, " failed its self-test: ", verdict.message()));
}

TuningEntry LayerTuner::EntryOf(const Subject& subject, const MeasuredPoint& point) const {
  TuningEntry entry;
  entry.key = TuningKeyOf(parts_.device, subject.spec, subject.shape, subject.x_type);
  entry.conditions = {
      .gemmd = parts_.store->gemmd_version(),
      .kernels = parts_.store->kernels_digest(),
      .driver = DriverText(driver_version_),
      .date = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone()),
      .protocol = kColdProtocol,
      .flush_bytes = timer_->flush_bytes(),
      .empty_kernel_ns = timer_->empty_ns()};
  entry.points = {point};
  return entry;
}

absl::Status LayerTuner::Tell(TuneStep step, int points) {
  done_ += points;
  step.done = done_;
  step.total = total_;
  if (progress_ && !progress_(step)) cancelled_ = true;
  return cancelled_ ? absl::CancelledError("the client has gone") : absl::OkStatus();
}

absl::Status LayerTuner::TellOutOfTime(const Subject& subject) {
  TuneStep step = StepOf(subject.spec, subject.shape);
  step.outcome = TuneOutcome::kOutOfTime;
  step.message = absl::StrCat(total_ - done_, " points are not measured");
  return Tell(std::move(step), total_ - done_);
}

absl::Status LayerTuner::TellFailure(const Subject& subject, int64_t m, const absl::Status& why,
                                     int points) {
  TuneStep step = StepOf(subject.spec, subject.shape);
  step.x_type = ElementTypeName(subject.x_type);
  step.outcome = TuneOutcome::kFailed;
  step.point.m = m;
  step.message = std::string(why.message());
  return Tell(std::move(step), points);
}

}  // namespace gemmd
