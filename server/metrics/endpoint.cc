#include "server/metrics/endpoint.h"

#include <prometheus/text_serializer.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace gemmd {
namespace {

constexpr char kPath[] = "/metrics";
constexpr char kTextType[] = "text/plain; version=0.0.4; charset=utf-8";

void Answer(const Collectables& collectables, const httplib::Request& request,
            httplib::Response& response) {
  if (request.path != kPath) {
    response.status = 404;
    response.set_content("only /metrics is here\n", "text/plain");
  } else if (request.method != "GET" && request.method != "HEAD") {
    response.status = 405;
    response.set_header("Allow", "GET, HEAD");
    response.set_content("only GET and HEAD\n", "text/plain");
  } else {
    response.status = 200;
    response.set_content(MetricsText(collectables), kTextType);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(
    const std::string& address, const Collectables& collectables) {
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port)) {
    return absl::UnavailableError(absl::StrCat("metrics_address ", address, " is not host:port"));
  }
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  auto server = std::make_unique<HttpServer>(
      [collectables](const httplib::Request& request, httplib::Response& response) {
        // The library would repeat the page once a range. The request is its own, not const.
        const_cast<httplib::Request&>(request).ranges.clear();
        Answer(collectables, request, response);
        return httplib::Server::HandlerResponse::Handled;
      });
  const int real_port = server->Start(host, port);
  if (real_port < 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen at metrics_address ", address, " (is it in use?)"));
  }
  return std::unique_ptr<MetricsEndpoint>(new MetricsEndpoint(
      std::move(server), absl::StrCat(address.substr(0, colon), ":", real_port)));
}

std::string MetricsText(const Collectables& collectables) {
  std::vector<prometheus::MetricFamily> families;
  for (const auto& collectable : collectables) {
    for (prometheus::MetricFamily& family : collectable->Collect())
      families.push_back(std::move(family));
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace gemmd
