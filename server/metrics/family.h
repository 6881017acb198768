// What    Builds the samples of one family for a Collectable.
#ifndef GEMMD_SERVER_METRICS_FAMILY_H_
#define GEMMD_SERVER_METRICS_FAMILY_H_

#include <prometheus/metric_family.h>

#include <string>
#include <utility>
#include <vector>

namespace gemmd {

class FamilyBuilder {
 public:
  FamilyBuilder(const char* name, const char* help, prometheus::MetricType type) {
    family_.name = name;
    family_.help = help;
    family_.type = type;
  }

  FamilyBuilder& Add(double value, std::vector<std::pair<std::string, std::string>> labels = {}) {
    prometheus::ClientMetric metric;
    for (auto& [name, text] : labels) metric.label.push_back({std::move(name), std::move(text)});
    (family_.type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value) =
        value;
    family_.metric.push_back(std::move(metric));
    return *this;
  }

  prometheus::MetricFamily Build() { return std::move(family_); }

 private:
  prometheus::MetricFamily family_;
};

inline FamilyBuilder Gauge(const char* name, const char* help) {
  return {name, help, prometheus::MetricType::Gauge};
}
inline FamilyBuilder Counter(const char* name, const char* help) {
  return {name, help, prometheus::MetricType::Counter};
}

}  // namespace gemmd

#endif  // GEMMD_SERVER_METRICS_FAMILY_H_
