#include "server/metrics/endpoint.h"

#include <netdb.h>
#include <prometheus/text_serializer.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace gemmd {
namespace {

// Connects to `address` and hangs up.
void Knock(const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &found) != 0) return;
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0) {
    [[maybe_unused]] const int ignored = connect(fd, found->ai_addr, found->ai_addrlen);
    close(fd);
  }
  freeaddrinfo(found);
}

}  // namespace

// The HTTP server looks every two seconds, or when someone connects, whether it should stop.
MetricsEndpoint::~MetricsEndpoint() {
  std::atomic<bool> closed{false};
  std::thread closer([this, &closed] {
    exposer_.reset();
    closed = true;
  });
  while (!closed) {
    Knock(address_);
    absl::SleepFor(absl::Milliseconds(2));
  }
  closer.join();
}

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(
    const std::string& address, const Collectables& collectables) {
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(address);
    for (const auto& collectable : collectables) exposer->RegisterCollectable(collectable);
    const std::vector<int> ports = exposer->GetListeningPorts();
    if (ports.empty()) return absl::UnavailableError("the metrics endpoint listens nowhere");
    std::string real = absl::StrCat(address.substr(0, address.rfind(':')), ":", ports[0]);
    return std::unique_ptr<MetricsEndpoint>(
        new MetricsEndpoint(std::move(exposer), std::move(real)));
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("cannot listen at metrics_address ", address,
                                               " (is it in use?): ", error.what()));
  }
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
