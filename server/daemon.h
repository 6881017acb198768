// What    The daemon: everything it consists of, in the order in which it starts and stops.
//           start  locks, cache directory, devices, node, metrics, session socket, gRPC
//           drain  health NOT_SERVING -> tell KeepSession streams -> finish requests -> end
//           sessions -> write answers -> close connections, remove sockets -> stop gRPC ->
//           release memory
// States  STARTING -> SERVING -> DRAINING -> STOPPED
// Errors  Start: reasons of exit_codes.h; nothing stays behind, no socket file either.
// Threads Start, Stop and destruction on one thread; Tick beside them; OnKernel from any.
#ifndef GEMMD_SERVER_DAEMON_H_
#define GEMMD_SERVER_DAEMON_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/exec/cuda_device.h"
#include "kernels/base/mutex.h"
#include "server/config.h"
#include "server/grpc_server.h"
#include "server/instance_lock.h"
#include "server/metrics/snapshot.h"
#include "server/service_context.h"
#include "server/session_socket.h"

namespace gemmd {

class Daemon {
 public:
  // `request_drain` is called when an operator asks for a drain; it must not block.
  static absl::StatusOr<std::unique_ptr<Daemon>> Start(
      LoadedConfig config, std::function<void(absl::Duration deadline)> request_drain);
  ~Daemon();

  // A kernel of a device is ready or not to be had; Tick tells the sessions. Must not block.
  void OnKernel(const KernelNotice& notice);

  // Once a second: health, log level, news of kernels. DataLoss when a device lost its context: the process
  // must end.
  absl::Status Tick();

  // Drains until `deadline`, then stops. Afterwards only destruction is allowed.
  void Stop(absl::Time deadline);

  Node& node() { return *node_; }
  const Config& config() const { return config_.config; }
  const std::string& metrics_address() const { return context_.metrics_address; }

 private:
  Daemon(LoadedConfig config, std::function<void(absl::Duration)> request_drain);
  void Warn() const;  // about settings that are odd but no error
  absl::Status LockPaths();
  absl::Status OpenNode();
  absl::Status StartMetrics();
  absl::Status StartServing();
  void TellArmedKernels();
  // Everything is answered, at last with SESSION_ENDED or DRAINING, before connections close.
  void EndSessions();

  const LoadedConfig config_;
  std::vector<InstanceLock> locks_;
  LogLevelControl log_level_;
  NoteLog note_log_;
  Mutex armed_mutex_;
  std::vector<KernelNotice> armed_ ABSL_GUARDED_BY(armed_mutex_);
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<Node> node_;
  std::unique_ptr<KeepStreams> keep_streams_;
  OpenCalls open_calls_;
  ServiceContext context_;
  std::unique_ptr<MetricsEndpoint> endpoint_;
  std::unique_ptr<SessionSocket> session_socket_;
  std::unique_ptr<GrpcServer> server_;
  std::thread compiler_search_;  // begins when the daemon serves: no start waits for it
};

}  // namespace gemmd

#endif  // GEMMD_SERVER_DAEMON_H_
