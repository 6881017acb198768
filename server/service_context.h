// What    What every gRPC service of the daemon needs, and the few steps that all calls share.
// Threads Set up before the server starts, then read by all threads.
#ifndef GEMMD_SERVER_SERVICE_CONTEXT_H_
#define GEMMD_SERVER_SERVICE_CONTEXT_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/node.h"
#include "core/prewarm.h"
#include "core/tune.h"
#include "server/config.h"
#include "server/keep_streams.h"
#include "server/log_level_control.h"
#include "server/metrics/endpoint.h"
#include "server/metrics/metrics.h"
#include "server/note_log.h"
#include "server/open_calls.h"

namespace gemmd {

// Bytes of one gRPC message in either direction; weights and activations never travel in messages.
inline constexpr int kMaxMessageBytes = 4 << 20;
// Payload of one WriteRegion or ReadRegion, leaving room for the fields around it.
inline constexpr uint64_t kMaxPayloadBytes = kMaxMessageBytes - 1024;

struct ServiceContext {
  Node* node = nullptr;
  Metrics* metrics = nullptr;
  KeepStreams* keep_streams = nullptr;
  OpenCalls* open_calls = nullptr;
  LogLevelControl* log_level = nullptr;
  NoteLog* note_log = nullptr;
  const LoadedConfig* config = nullptr;
  std::shared_ptr<KernelStore> kernels;
  std::shared_ptr<TuningStore> tuning;
  Collectables collectables;    // what GetMetrics prints
  std::string metrics_address;  // empty when there is no endpoint
  absl::Time started;
  std::function<void(absl::Duration deadline)> request_drain;

  // The session whose token the call carries. Unauthenticated NO_SESSION or UNKNOWN_SESSION.
  absl::StatusOr<std::shared_ptr<Session>> SessionOf(const grpc::CallbackServerContext& call) const;
  // Counts a request that the server refused by itself, and returns its status.
  absl::Status Refuse(absl::Status status) const;
};

// Infinite when the client set none.
absl::Time DeadlineOf(const grpc::CallbackServerContext& call);

// Answers a unary call at once.
grpc::ServerUnaryReactor* Reply(grpc::CallbackServerContext* call, const absl::Status& status);

// Shared by a call and by the work it started, which may outlive it.
using CancelFlag = std::shared_ptr<std::atomic<bool>>;
inline CancelFlag MakeCancelFlag() { return std::make_shared<std::atomic<bool>>(false); }
inline std::function<bool()> IsSet(CancelFlag flag) {
  return [flag = std::move(flag)] { return flag->load(); };
}

// A unary call whose answer comes later; owns itself until OnDone. Finish exactly once.
class DeferredCall : public grpc::ServerUnaryReactor {
 public:
  const CancelFlag& cancelled() const { return cancelled_; }
  void OnCancel() override { *cancelled_ = true; }
  void OnDone() override { delete this; }

 private:
  const CancelFlag cancelled_ = MakeCancelFlag();
};

}  // namespace gemmd

#endif  // GEMMD_SERVER_SERVICE_CONTEXT_H_
