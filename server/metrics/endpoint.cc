#include "server/metrics/endpoint.h"

#include <prometheus/text_serializer.h>

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gemmd {

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(const std::string& address,
                                                                        const Collectables& collectables) {
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(address);
    for (const auto& collectable : collectables) exposer->RegisterCollectable(collectable);
    const std::vector<int> ports = exposer->GetListeningPorts();
    if (ports.empty()) return absl::UnavailableError("the metrics endpoint listens nowhere");
    std::string real = absl::StrCat(address.substr(0, address.rfind(':')), ":", ports[0]);
    return std::unique_ptr<MetricsEndpoint>(new MetricsEndpoint(std::move(exposer), std::move(real)));
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen at metrics_address ", address, " (is it in use?): ", error.what()));
  }
}

std::string MetricsText(const Collectables& collectables) {
  std::vector<prometheus::MetricFamily> families;
  for (const auto& collectable : collectables) {
    for (prometheus::MetricFamily& family : collectable->Collect()) families.push_back(std::move(family));
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace gemmd
