// What    The answer of RegisterModel: the plan and what became of each module, all of it; progress in between
//         as fast as the client reads. The producer never waits.
// Memory  At most one message per module waits.
// Threads Report and Complete come from loader threads, the reactions from gRPC's. Complete comes once and
//         last; the stream finishes after it and then deletes itself.
#ifndef GEMMD_SERVER_MODEL_STREAM_H_
#define GEMMD_SERVER_MODEL_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include <deque>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "core/model_registration.h"
#include "gemmd/v1/model.pb.h"
#include "kernels/base/mutex.h"
#include "server/open_calls.h"

namespace gemmd {

class ModelStream : public grpc::ServerWriteReactor<v1::RegisterModelProgress> {
 public:
  explicit ModelStream(OpenCalls* calls) : lease_(calls) {}

  bool Report(const ModelProgress& progress);  // false: the client has gone
  // `undo` is called when the client was gone before it learned of the success.
  void Complete(const absl::Status& status, std::function<void()> undo = nullptr);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  void Step(std::optional<absl::Status> completed = std::nullopt);

  const OpenCalls::Lease lease_;
  v1::RegisterModelProgress message_;  // being written
  Mutex mutex_;
  std::deque<v1::RegisterModelProgress> queue_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::RegisterModelProgress> latest_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> result_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> undo_ ABSL_GUARDED_BY(mutex_);
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace gemmd

#endif  // GEMMD_SERVER_MODEL_STREAM_H_
