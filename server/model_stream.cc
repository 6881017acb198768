#include "server/model_stream.h"

#include <utility>

#include "server/convert_models.h"
#include "server/status.h"

namespace gemmd {
namespace {

// What a client must see: the plan, and the end of a module.
bool IsLasting(const ModelProgress& progress) {
  return progress.module.empty() || progress.state == LayerState::kReady ||
         progress.state == LayerState::kFailed;
}

}  // namespace

bool ModelStream::Report(const ModelProgress& progress) {
  v1::RegisterModelProgress message = ToProto(progress);
  {
    MutexLock lock(mutex_);
    if (cancelled_) return false;
    latest_.reset();  // older than this one
    if (IsLasting(progress)) {
      queue_.push_back(std::move(message));
    } else {
      latest_ = std::move(message);
    }
  }
  Step();
  return true;
}

void ModelStream::Complete(const absl::Status& status, std::function<void()> undo) {
  {
    MutexLock lock(mutex_);
    undo_ = std::move(undo);
  }
  Step(status);
}

void ModelStream::OnDone() {
  std::function<void()> undo;
  {
    MutexLock lock(mutex_);
    if (cancelled_) undo.swap(undo_);
  }
  if (undo) undo();
  delete this;
}

void ModelStream::OnWriteDone(bool ok) {
  {
    MutexLock lock(mutex_);
    busy_ = false;
    if (!ok) cancelled_ = true;
  }
  Step();
}

void ModelStream::OnCancel() {
  MutexLock lock(mutex_);
  cancelled_ = true;
}

// At most one operation is in flight. `completed` is recorded under the same lock that claims the next
// operation: once it is visible, a reaction may finish and delete the stream.
void ModelStream::Step(std::optional<absl::Status> completed) {
  std::optional<absl::Status> result;
  {
    MutexLock lock(mutex_);
    if (completed.has_value()) result_ = std::move(completed);
    if (cancelled_ || result_.has_value()) latest_.reset();
    if (cancelled_) queue_.clear();
    if (busy_ || (queue_.empty() && !latest_.has_value() && !result_.has_value())) return;
    busy_ = true;
    if (!queue_.empty()) {
      message_ = std::move(queue_.front());
      queue_.pop_front();
    } else if (latest_.has_value()) {
      message_ = *std::exchange(latest_, std::nullopt);
    } else {
      result.swap(result_);
    }
  }
  if (result.has_value()) {
    Finish(ToGrpcStatus(*result));
  } else {
    StartWrite(&message_);
  }
}

}  // namespace gemmd
