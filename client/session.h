// What    Session: one client process at the daemon. Regions and layers come from it and keep it
//         open; it ends with the last of them.
// Use     GEMMD_ASSIGN_OR_RETURN(Session session, Session::Open({}));
//         GEMMD_ASSIGN_OR_RETURN(Layer layer, session.RegisterCheckpoint(path, module));
//         GEMMD_ASSIGN_OR_RETURN(Region memory, session.AllocateHost(bytes));
//         ... fill memory.data() ...
//         GEMMD_RETURN_IF_ERROR(session.Run(Gemm{.layer = &layer, .x = ..., .y = ...}).status());
// Restart When the daemon was restarted, the next call opens the session anew and registers live
//         regions and layers again. A request in flight then fails with Unavailable
//         CONNECTION_LOST: it may or may not have run, and repeating it is safe because y may not
//         overlap x. A batch-invariant request that names numerics gets those or NUMERICS_NOT_READY: a
//         restart changes no bits silently.
// Retry   Registrations, look-ups and releases are repeated on Unavailable with growing pauses, as
//         RetryInfo says where the daemon sends it. Run() is not.
// Fork    After fork() a child gets FailedPrecondition FORKED and opens its own session. A child
//         that never calls exec also inherits the session socket: the session lives until both
//         processes end.
// Errors  Codes and reasons of proto/README.md and client/rpc_status.h.
// Threads Thread-safe.
#ifndef GEMMD_CLIENT_SESSION_H_
#define GEMMD_CLIENT_SESSION_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/layer.h"
#include "client/region.h"
#include "client/request.h"
#include "client/session_state.h"

namespace gemmd::client {

class Session {
 public:
  static absl::StatusOr<Session> Open(const SessionOptions& options);

  // Of the daemon the session is open with now.
  absl::StatusOr<v1::HelloResponse> hello() const;
  // How often the session was opened anew.
  uint64_t reopened() const { return state_->reopened(); }
  absl::StatusOr<uint64_t> session_id() const;
  // False: the daemon ended or gave the session up. The next call opens it anew, as far as it can.
  bool connected() const { return state_->connected(); }

  // Host memory of ours, shared with the daemon (CPU device). Needs the session socket.
  absl::StatusOr<Region> AllocateHost(uint64_t bytes, const std::string& label = "");
  absl::StatusOr<Region> RegisterHostMemory(std::shared_ptr<HostArena> arena,
                                            const std::string& label = "");
  // CUDA memory of the caller: `bytes` from `pointer` on. The Region must be released before the
  // memory.
  absl::StatusOr<Region> RegisterCuda(const void* pointer, uint64_t bytes,
                                      const std::string& label = "");
  // Memory of the daemon on `device`, for callers that cannot share theirs.
  absl::StatusOr<Region> AllocateInDaemon(const std::string& device, uint64_t bytes,
                                          const std::string& label = "");

  // `device`: empty = best device. `name` empty = `module`.
  absl::StatusOr<Layer> RegisterCheckpoint(const std::string& path, const std::string& module,
                                           const std::string& device = "",
                                           const std::string& name = "",
                                           ProgressFunction progress = nullptr);
  // The part of a module that `source.slice` says (layer_slice.h). `name` empty = the module and its part.
  absl::StatusOr<Layer> RegisterCheckpoint(const v1::CheckpointSource& source,
                                           const std::string& device = "",
                                           const std::string& name = "",
                                           ProgressFunction progress = nullptr);
  absl::StatusOr<Layer> RegisterTensors(const LayerTensors& tensors, const std::string& device,
                                        const std::string& name,
                                        ProgressFunction progress = nullptr);

  // Now, from the daemon.
  absl::StatusOr<v1::LayerInfo> Inspect(const Layer& layer) const;
  absl::StatusOr<v1::ExplainLayerResponse> Explain(const Layer& layer,
                                                   const std::vector<int64_t>& m) const;

  // Returns when y is complete. The default deadline is options.call_timeout from now.
  absl::StatusOr<v1::GemmResponse> Run(const Gemm& gemm) const;
  absl::StatusOr<v1::GemmResponse> Run(const Gemm& gemm, absl::Time deadline) const;
  absl::StatusOr<v1::MoeResponse> Run(const Moe& moe) const;
  absl::StatusOr<v1::MoeResponse> Run(const Moe& moe, absl::Time deadline) const;

  // For this library.
  const std::shared_ptr<SessionState>& state() const { return state_; }

 private:
  explicit Session(std::shared_ptr<SessionState> state) : state_(std::move(state)) {}
  absl::StatusOr<Region> Add(std::shared_ptr<RegionRecord> record);
  absl::StatusOr<Layer> Add(std::shared_ptr<LayerRecord> record);

  std::shared_ptr<SessionState> state_;
};

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_SESSION_H_
