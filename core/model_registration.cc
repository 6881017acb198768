#include "core/model_registration.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/errors.h"
#include "core/node.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

constexpr size_t kMostNamed = 8;        // faults in one message
constexpr size_t kMostNameBytes = 256;  // of a layer, as RegisterLayer has it

std::set<uint64_t> HeldBy(const Node& node, const Session& session) {
  std::set<uint64_t> held;
  for (const LayerInfo& layer : node.ListLayers(session)) held.insert(layer.layer_id);
  return held;
}

// What other modules would meet too.
bool StopsAll(const absl::Status& status) {
  const std::string reason = ReasonOf(status);
  return reason == "SESSION_ENDED" || reason == "DRAINING" || reason == "QUOTA" ||
         reason == "CANCELLED";
}

}  // namespace

ModelRegistration::ModelRegistration(Node& node, std::shared_ptr<Session> session,
                                     ModelRequest request, ModelPlan plan, int window,
                                     Progress progress, Done done)
    : node_(node),
      session_(std::move(session)),
      request_(std::move(request)),
      plan_(std::move(plan.modules)),
      hidden_files_(std::move(plan.hidden_files)),
      modules_total_(static_cast<int>(plan_.size() + hidden_files_.size())),
      unmatched_exclude_(std::move(plan.unmatched_exclude)),
      notes_(std::move(plan.notes)),
      window_(std::max(window, 1)),
      progress_(std::move(progress)),
      done_(std::move(done)),
      held_before_(HeldBy(node, *session_)),
      bytes_done_(plan_.size(), 0) {
  for (const PlannedModule& planned : plan_) bytes_total_ += planned.bytes;
}

void ModelRegistration::Start() {
  {
    MutexLock lock(mutex_);
    ReportPlan();
  }
  Pump();
}

void ModelRegistration::ReportPlan() {
  ModelProgress plan = Totals();
  plan.unmatched_exclude = unmatched_exclude_;
  plan.notes = notes_;
  Report(std::move(plan));
  for (const HiddenFile& file : hidden_files_) {
    failures_.push_back({file.name, file.status});
    ++modules_done_;
    ModelProgress failed = Totals();
    failed.module = file.name;
    failed.state = LayerState::kFailed;
    failed.failure = file.status;
    if (!cancelled_) Report(std::move(failed));
  }
}

// Layers that are there already are answered within Submit, thousands of them: a loop, not a recursion.
void ModelRegistration::Pump() {
  while (const std::optional<size_t> index = ClaimNext()) {
    Submit(*index);
    MutexLock lock(mutex_);
    pumping_ = false;
  }
  FinishIfDone();
}

std::optional<size_t> ModelRegistration::ClaimNext() {
  MutexLock lock(mutex_);
  if (pumping_ || stopped_ || under_way_ >= window_ || next_ == plan_.size()) return std::nullopt;
  pumping_ = true;
  ++under_way_;
  return next_++;
}

void ModelRegistration::Submit(size_t index) {
  const PlannedModule& planned = plan_[index];
  LayerRequest request;
  request.device = request_.device;
  request.name = request_.name_prefix + planned.module;
  if (request.name.size() > kMostNameBytes) {
    return OnDone(index, Error(absl::StatusCode::kInvalidArgument, "OUT_OF_RANGE",
                               absl::StrCat("the length of its name is ", request.name.size(),
                                            ", must be at most ", kMostNameBytes, " bytes")));
  }
  request.source = CheckpointSource{request_.path, planned.module, planned.slice, request_.quantize,
                                    request_.gptq_zero_points};
  node_.RegisterLayer(
      session_, std::move(request),
      [self = shared_from_this(), index](const LayerProgress& progress) {
        return self->OnProgress(index, progress);
      },
      [self = shared_from_this(), index](absl::StatusOr<LayerInfo> layer) {
        self->OnDone(index, std::move(layer));
      });
}

ModelProgress ModelRegistration::Totals() const {
  ModelProgress progress;
  progress.modules_total = modules_total_;
  progress.modules_done = modules_done_;
  progress.bytes_total = bytes_total_;
  progress.bytes_done = std::accumulate(bytes_done_.begin(), bytes_done_.end(), uint64_t{0});
  return progress;
}

ModelProgress ModelRegistration::About(size_t index) const {
  ModelProgress progress = Totals();
  progress.module = plan_[index].module;
  progress.slice = plan_[index].slice;
  progress.module_bytes_total = plan_[index].bytes;
  progress.module_bytes_done = bytes_done_[index];
  return progress;
}

void ModelRegistration::Report(ModelProgress progress) {
  if (!progress_ || progress_(progress)) return;
  cancelled_ = true;
  stopped_ = true;
}

bool ModelRegistration::OnProgress(size_t index, const LayerProgress& progress) {
  MutexLock lock(mutex_);
  if (cancelled_) return false;
  const uint64_t bytes = plan_[index].bytes;
  const bool is_quantizing = progress.state == LayerState::kQuantizing;
  if (progress.state == LayerState::kPacking) bytes_done_[index] = bytes;
  if (progress.state == LayerState::kLoading) bytes_done_[index] = std::min(progress.bytes_done, bytes);
  ModelProgress about = About(index);
  about.state = progress.state;
  if (is_quantizing) {
    about.module_bytes_done = progress.bytes_done;
    about.module_bytes_total = progress.bytes_total;
  }
  Report(std::move(about));
  return !cancelled_;
}

void ModelRegistration::OnDone(size_t index, absl::StatusOr<LayerInfo> layer) {
  {
    MutexLock lock(mutex_);
    --under_way_;
    ++modules_done_;
    bytes_done_[index] = plan_[index].bytes;
    ModelProgress about = About(index);
    if (layer.ok()) {
      registered_.insert(layer->layer_id);
      about.state = LayerState::kReady;
      about.layer = *std::move(layer);
    } else {
      failures_.push_back({plan_[index].module, layer.status()});
      if (!request_.keep_going || StopsAll(layer.status())) stopped_ = true;
      about.state = LayerState::kFailed;
      about.failure = layer.status();
    }
    if (!cancelled_) Report(std::move(about));
  }
  Pump();
}

// One fault of a config fails every module that it concerns.
std::vector<ModelRegistration::Fault> ModelRegistration::FaultsOf(
    const std::vector<Failure>& failures) {
  std::vector<Fault> faults;
  std::map<std::string, size_t> known;  // by what is wrong
  for (const Failure& failure : failures) {
    const auto [at, is_new] =
        known.emplace(FaultOf(ReasonOf(failure.status), failure.status.message()), faults.size());
    if (is_new) faults.push_back({&failure, 0});
    ++faults[at->second].modules;
  }
  return faults;
}

absl::Status ModelRegistration::Failed() const {
  const Failure& first = failures_.front();
  std::string message =
      absl::StrCat(failures_.size(), " of ", modules_total_, " modules cannot be registered");
  const int untried = modules_total_ - modules_done_;
  if (untried > 0) absl::StrAppend(&message, ", ", untried, " were not tried");
  const std::vector<Fault> faults = FaultsOf(failures_);
  for (size_t i = 0; i < faults.size(); ++i) {
    if (i == kMostNamed) {
      absl::StrAppend(&message, "; and ", faults.size() - i, " more");
      break;
    }
    absl::StrAppend(&message, i == 0 ? ": " : "; ", faults[i].first->module, ": ",
                    faults[i].first->status.message());
    if (faults[i].modules > 1) {
      absl::StrAppend(&message, " (and so for ", faults[i].modules - 1, " more of the modules)");
    }
  }
  return Error(first.status.code(), ReasonOf(first.status), message);
}

void ModelRegistration::FinishIfDone() {
  absl::StatusOr<ModelResult> result = ModelResult{};
  std::set<uint64_t> mine;
  {
    MutexLock lock(mutex_);
    const bool waits = under_way_ > 0 || pumping_ || (!stopped_ && next_ < plan_.size());
    if (finished_ || waits) return;
    finished_ = true;
    if (cancelled_) {
      result = Error(absl::StatusCode::kCancelled, "CANCELLED", "the registration was cancelled");
    } else if (stopped_) {
      result = Failed();
    } else {
      const int failed = static_cast<int>(failures_.size());
      result = ModelResult{modules_done_ - failed, failed, {}};
      std::set_difference(registered_.begin(), registered_.end(), held_before_.begin(),
                          held_before_.end(), std::back_inserter(result->added));
    }
    if (!result.ok()) mine.swap(registered_);
  }
  Release(mine);
  done_(std::move(result));
}

void ModelRegistration::Release(const std::set<uint64_t>& layers) {
  for (const uint64_t layer : layers) {
    // Of a session that has ended everything is released already.
    if (held_before_.count(layer) == 0) node_.ReleaseLayer(*session_, layer).IgnoreError();
  }
}

}  // namespace gemmd
