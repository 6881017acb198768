// What    The answer of RegisterLayer: progress while the layer loads, then the layer or an error. A slow
//         reader sees fewer progress messages, never old ones.
// Threads Report and Complete come from a loader thread, the reactions from gRPC's. Complete comes once and
//         last; the stream finishes after it and then deletes itself.
#ifndef GEMMD_SERVER_REGISTER_STREAM_H_
#define GEMMD_SERVER_REGISTER_STREAM_H_

#include <grpcpp/support/server_callback.h>

#include <optional>

#include "absl/status/statusor.h"
#include "core/node.h"
#include "gemmd/v1/layer.pb.h"
#include "kernels/base/mutex.h"
#include "server/open_calls.h"

namespace gemmd {

class RegisterStream : public grpc::ServerWriteReactor<v1::RegisterLayerProgress> {
 public:
  explicit RegisterStream(OpenCalls* calls) : lease_(calls) {}

  bool Report(const LayerProgress& progress);  // false: the client has gone
  void Complete(absl::StatusOr<LayerInfo> layer);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override { delete this; }

 private:
  void Step(std::optional<absl::StatusOr<LayerInfo>> completed = std::nullopt);

  const OpenCalls::Lease lease_;
  v1::RegisterLayerProgress message_;  // being written
  Mutex mutex_;
  std::optional<v1::RegisterLayerProgress> next_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::StatusOr<LayerInfo>> result_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace gemmd

#endif  // GEMMD_SERVER_REGISTER_STREAM_H_
