// What    The gRPC server on the Unix socket: services, health, reflection, limits.
// Health  "" the process lives; "gemmd.v1.GemmService" a device takes requests; "device/<id>" that one does.
// Errors  Start: CANNOT_CREATE.
// Threads Thread-safe; Shutdown once.
#ifndef GEMMD_SERVER_GRPC_SERVER_H_
#define GEMMD_SERVER_GRPC_SERVER_H_

#include <grpcpp/impl/service_type.h>
#include <grpcpp/server.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/service_context.h"

namespace gemmd {

class GrpcServer {
 public:
  // `context` outlives the server.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const std::string& socket,
                                                           const ServiceContext* context);

  // What the health service says, from now on; a draining server serves nothing.
  void UpdateHealth(const NodeStatus& status);

  // Refuses new calls, waits for those in flight until `deadline`, then cancels them.
  void Shutdown(absl::Time deadline);

 private:
  GrpcServer() = default;
  std::vector<std::unique_ptr<grpc::Service>> services_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace gemmd

#endif  // GEMMD_SERVER_GRPC_SERVER_H_
