#include "server/register_stream.h"

#include <utility>

#include "server/convert.h"
#include "server/status.h"

namespace gemmd {

bool RegisterStream::Report(const LayerProgress& progress) {
  {
    MutexLock lock(mutex_);
    if (cancelled_) return false;
    next_ = ToProto(progress);
  }
  Step();
  return true;
}

void RegisterStream::Complete(absl::StatusOr<LayerInfo> layer) { Step(std::move(layer)); }

void RegisterStream::OnWriteDone(bool ok) {
  {
    MutexLock lock(mutex_);
    writing_ = false;
    if (!ok) cancelled_ = true;
  }
  Step();
}

void RegisterStream::OnCancel() {
  MutexLock lock(mutex_);
  cancelled_ = true;
}

// At most one operation is in flight. `completed` is recorded under the same lock that claims the next
// operation: once it is visible, a reaction may finish and delete the stream.
void RegisterStream::Step(std::optional<absl::StatusOr<LayerInfo>> completed) {
  std::optional<absl::StatusOr<LayerInfo>> result;
  {
    MutexLock lock(mutex_);
    if (completed.has_value()) result_ = std::move(completed);
    if (writing_ || (!result_.has_value() && !next_.has_value())) return;
    writing_ = true;
    result.swap(result_);
    if (!result.has_value()) message_ = *std::exchange(next_, std::nullopt);
    next_.reset();
  }
  if (!result.has_value()) {
    StartWrite(&message_);
  } else if (result->ok()) {
    message_ = ReadyToProto(**result);
    StartWriteAndFinish(&message_, grpc::WriteOptions(), grpc::Status::OK);
  } else {
    Finish(ToGrpcStatus(result->status()));
  }
}

}  // namespace gemmd
