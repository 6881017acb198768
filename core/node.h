// What    Node: the daemon's state and every operation on it, free of gRPC. A service method
//         converts, calls one method here, and converts back.
// Parts   sessions and regions (core/session), layers (core/layer), devices and queues (core/exec).
// Errors  Codes and reasons of proto/README.md.
// Threads Every method is thread-safe; none of them holds a registry lock while it calls a device.
#ifndef GEMMD_CORE_NODE_H_
#define GEMMD_CORE_NODE_H_

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "core/exec/device.h"
#include "core/model_registration.h"
#include "core/types.h"
#include "kernels/tuning.h"

namespace gemmd {

class Session;  // core/session/session.h

class Node {
 public:
  class Impl;  // core/node_impl.h

  // `devices` best first; at least one. `observer` outlives the node and may be null.
  Node(NodeOptions options, std::vector<std::unique_ptr<Device>> devices, NodeObserver* observer);
  ~Node();  // ends every session and waits until all memory is released

  uint64_t boot_id() const;
  NodeStatus Status() const;

  // -- sessions --
  // ResourceExhausted QUOTA beyond max_sessions, and for a stream session beyond a quarter of that
  // which nobody keeps yet: those who open and never keep leave room for everybody else.
  absl::StatusOr<std::shared_ptr<Session>> OpenSession(const SessionIdentity& identity);
  // Unauthenticated UNKNOWN_SESSION; Unavailable DRAINING while the node drains, which ends sessions.
  absl::StatusOr<std::shared_ptr<Session>> FindSession(absl::string_view token) const;
  const std::string& TokenOf(const Session& session) const;
  uint64_t IdOf(const Session& session) const;
  // A stream-kept session without a stream ends after stream_grace.
  absl::Status BeginKeep(Session& session);
  void EndKeep(const std::shared_ptr<Session>& session);
  // Fails queued requests, stops the running one where the device can be stopped, releases
  // regions and layers. Returns at once; everything is released within 2 seconds unless a device
  // call hangs. False: it had ended already.
  bool EndSession(const std::shared_ptr<Session>& session, absl::string_view why);
  void EndSessions(absl::string_view why);  // all of them
  std::vector<SessionInfo> ListSessions() const;

  // -- regions --
  // Takes over `fd` (memfd or exported allocation) and returns a ticket for PassedSource.
  absl::StatusOr<uint64_t> PassMemory(Session& session, int fd, uint64_t size);
  absl::StatusOr<RegionInfo> RegisterRegion(Session& session, const RegionRequest& request);
  absl::Status UnregisterRegion(Session& session, const RegionRef& region);
  std::vector<RegionInfo> ListRegions(const Session& session) const;
  absl::Status WriteRegion(Session& session, const RegionRef& region, uint64_t offset,
                           absl::string_view data);
  absl::StatusOr<std::string> ReadRegion(Session& session, const RegionRef& region, uint64_t offset,
                                         uint64_t size);

  // -- layers --
  // Runs on a loader thread. `progress` returns false to cancel. `done` is called exactly once.
  void RegisterLayer(const std::shared_ptr<Session>& session, LayerRequest request,
                     std::function<bool(const LayerProgress&)> progress,
                     std::function<void(absl::StatusOr<LayerInfo>)> done);
  // Registers the modules of a checkpoint that the request chooses (core/model_registration.h). The caller
  // waits until the checkpoint's headers are read; the layers are loaded by loader threads. `progress` and
  // `done` as above.
  void RegisterModel(const std::shared_ptr<Session>& session, ModelRequest request,
                     std::function<bool(const ModelProgress&)> progress,
                     std::function<void(absl::StatusOr<ModelResult>)> done);
  absl::Status ReleaseLayer(Session& session, uint64_t layer_id);
  absl::StatusOr<LayerInfo> GetLayer(const Session& session, uint64_t layer_id) const;
  std::vector<LayerInfo> ListLayers(const Session& session) const;
  std::vector<LayerInfo> ListAllLayers() const;
  absl::StatusOr<std::vector<KernelExplanation>> Explain(const Session& session, uint64_t layer_id,
                                                         const std::vector<int64_t>& m);

  // -- requests --
  // Validated before they are queued; executed in order of submission within a session. `done` is
  // called exactly once, from any thread, possibly before the call returns. A request whose
  // deadline passes or whose `cancelled` turns true while it waits is not run.
  void SubmitGemm(const std::shared_ptr<Session>& session, const GemmRequest& request,
                  absl::Time deadline, std::function<bool()> cancelled,
                  std::function<void(absl::StatusOr<GemmResult>)> done);
  void SubmitMoe(const std::shared_ptr<Session>& session, const MoeRequest& request,
                 absl::Time deadline, std::function<bool()> cancelled,
                 std::function<void(absl::StatusOr<MoeResult>)> done);

  // -- tuning (node_tune.cc) --
  // Measures kernels for the layers on the device (empty id: the best GPU) while no request is queued or
  // running; returns when all is done. FailedPrecondition NOT_TUNABLE: it has no kernels to choose from.
  absl::Status Tune(const std::string& device_id, std::vector<TuneLayer> layers,
                    TuneSettings settings, std::function<bool()> cancelled, TuneProgress progress);

  // New sessions, layers and requests, and calls of sessions that have ended, get Unavailable
  // DRAINING; returns when nothing is queued or running, or at `deadline` (then DeadlineExceeded).
  absl::Status Drain(absl::Time deadline);

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace gemmd

#endif  // GEMMD_CORE_NODE_H_
