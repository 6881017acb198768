// What    The HTTP endpoint: GET and HEAD of /metrics (404 and 405 for all else), and the same text
//         for the GetMetrics call.
// Errors  Start: Unavailable when the address cannot be bound; the message names it.
// Threads Thread-safe.
#ifndef GEMMD_SERVER_METRICS_ENDPOINT_H_
#define GEMMD_SERVER_METRICS_ENDPOINT_H_

#include <prometheus/collectable.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/metrics/http_server.h"

namespace gemmd {

using Collectables = std::vector<std::shared_ptr<prometheus::Collectable>>;

class MetricsEndpoint {
 public:
  // `address` is host:port; port 0 lets the system choose.
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(const std::string& address,
                                                                const Collectables& collectables);
  const std::string& address() const { return address_; }  // with the real port

 private:
  MetricsEndpoint(std::unique_ptr<HttpServer> server, std::string address)
      : server_(std::move(server)), address_(std::move(address)) {}
  const std::unique_ptr<HttpServer> server_;
  std::string address_;
};

// Prometheus text format 0.0.4.
std::string MetricsText(const Collectables& collectables);

}  // namespace gemmd

#endif  // GEMMD_SERVER_METRICS_ENDPOINT_H_
