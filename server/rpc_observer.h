// What    An interceptor that counts and times every call, and logs those that fail (failure_log.h).
// Threads As gRPC calls it; everything it calls is thread-safe.
#ifndef GEMMD_SERVER_RPC_OBSERVER_H_
#define GEMMD_SERVER_RPC_OBSERVER_H_

#include <grpcpp/support/server_interceptor.h>

#include "server/metrics/metrics.h"

namespace gemmd {

class RpcObserverFactory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit RpcObserverFactory(Metrics* metrics);
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override;

 private:
  Metrics* const metrics_;
};

}  // namespace gemmd

#endif  // GEMMD_SERVER_RPC_OBSERVER_H_
