// What    The open KeepSession streams. Each keeps its session alive and brings it events; the end of the
//         stream ends the session. A drain tells all of them, and at last finishes them: an idle stream
//         would hold the server's shutdown for ever.
// Threads Thread-safe.
#ifndef GEMMD_SERVER_KEEP_STREAMS_H_
#define GEMMD_SERVER_KEEP_STREAMS_H_

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "core/node.h"
#include "gemmd/v1/session.pb.h"
#include "kernels/base/mutex.h"

namespace gemmd {

class KeepStream;

class KeepStreams {
 public:
  explicit KeepStreams(Node* node) : node_(node) {}

  using Reactor = grpc::ServerBidiReactor<v1::KeepSessionRequest, v1::SessionEvent>;
  // A stream for `session`, or one that ends at once with the error.
  Reactor* Open(absl::StatusOr<std::shared_ptr<Session>> session);

  void NotifyDraining();  // also every stream that opens later
  // Kernels for batch-invariant requests are ready on `device`.
  void NotifyNumerics(const std::string& device, const std::vector<KernelNumerics>& numerics);
  // Ends the streams, also those that open later, with Unavailable DRAINING. Returns when they have
  // ended, or at `deadline`.
  void FinishAll(absl::Time deadline);

 private:
  friend class KeepStream;
  void SendToAll(const v1::SessionEvent& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Remove(KeepStream* stream);

  Node* const node_;
  Mutex mutex_;
  CondVar changed_;
  std::set<KeepStream*> streams_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool finishing_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace gemmd

#endif  // GEMMD_SERVER_KEEP_STREAMS_H_
