// Models: what a checkpoint directory holds, as layers.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/reading_notes.h"
#include "core/model_registration.h"
#include "core/node.h"
#include "core/node_impl.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

// Modules under way at a time: as many as keep every loader busy, few enough that other sessions' layers do
// not wait behind a whole model.
constexpr int kWindow = 32;

absl::Status CheckPath(const std::string& path) {
  if (path.empty()) {
    return Error(absl::StatusCode::kInvalidArgument, "MISSING_FIELD", "path is missing");
  }
  const size_t nul = path.find('\0');  // the file system would stop reading there
  if (nul == std::string::npos) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, "BAD_PATH",
               absl::StrCat("path has a NUL at byte ", nul));
}

// What is to be said of how the modules of `plan` are read.
void AddReadingNotes(const Checkpoint& checkpoint, const ReadingOptions& reading, ModelPlan& plan) {
  for (std::string& note : ReadingNotes(checkpoint, plan.modules, reading)) plan.notes.push_back(std::move(note));
}

absl::StatusOr<ModelPlan> Plan(const Node::Impl& impl, const ModelRequest& request) {
  GEMMD_RETURN_IF_ERROR(CheckPath(request.path));
  GEMMD_RETURN_IF_ERROR(impl.FindPlace(request.device).status());
  if (request.quantize.has_value()) {
    GEMMD_RETURN_IF_ERROR(Annotate(CheckTarget(*request.quantize), "quantize"));
  }
  GEMMD_ASSIGN_OR_RETURN(const std::filesystem::path directory,
                         ResolveCheckpointPath(request.path, impl.options.checkpoint_roots));
  GEMMD_ASSIGN_OR_RETURN(const auto checkpoint, impl.checkpoints->Open(directory));
  GEMMD_ASSIGN_OR_RETURN(ModelPlan plan, PlanModel(*checkpoint, request.selection));
  if (!request.keep_going && !plan.hidden_files.empty()) return plan.hidden_files.front().status;
  AddReadingNotes(*checkpoint, impl.ReadingOf(request.gptq_zero_points), plan);
  return plan;
}

}  // namespace

void Node::RegisterModel(const std::shared_ptr<Session>& session, ModelRequest request,
                         std::function<bool(const ModelProgress&)> progress,
                         std::function<void(absl::StatusOr<ModelResult>)> done) {
  if (absl::Status begun = impl_->activity.Begin(); !begun.ok()) return done(begun);
  auto ended = [impl = impl_.get(), done = std::move(done)](absl::StatusOr<ModelResult> result) {
    done(std::move(result));
    impl->activity.End();
  };
  absl::StatusOr<ModelPlan> plan = Plan(*impl_, request);
  if (!plan.ok()) return ended(plan.status());
  std::make_shared<ModelRegistration>(*this, session, std::move(request), *std::move(plan), kWindow,
                                      std::move(progress), std::move(ended))
      ->Start();
}

}  // namespace gemmd
