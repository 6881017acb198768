// What    Counters and histograms that events feed: the node's observer, and the RPC layer's.
// Names   gemmd_ prefix, base units; README.md lists them. Label values are bounded: devices,
//         codes, methods, reasons; never a session, layer or shape. A label that exceeds its bound
//         becomes "other".
// Threads Every method is thread-safe and cheap: a lock, a hash lookup, an atomic addition.
#ifndef GEMMD_SERVER_METRICS_METRICS_H_
#define GEMMD_SERVER_METRICS_METRICS_H_

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/node.h"
#include "kernels/base/mutex.h"

namespace gemmd {

// The children of one family, made on first use and at most `kMaxChildren`: after that, all labels that
// are new share one child whose values read "other".
template <typename Metric>
class MetricChildren {
 public:
  using Labels = std::map<std::string, std::string>;
  using Make = std::function<Metric&(const Labels&)>;
  static constexpr size_t kMaxChildren = 1024;

  MetricChildren(std::vector<std::string> names, Make make)
      : names_(std::move(names)), make_(std::move(make)) {}
  Metric& Get(const std::vector<std::string>& values);

 private:
  const std::vector<std::string> names_;
  const Make make_;
  Mutex mutex_;
  std::map<std::vector<std::string>, Metric*> children_ ABSL_GUARDED_BY(mutex_);
};

class Metrics : public NodeObserver {
 public:
  // Series of every device exist from the start, so that 0 is visible.
  Metrics(const std::string& version, const std::vector<std::string>& devices);

  void OnRequest(const std::string& device, bool moe, absl::StatusCode code,
                 const Timing& timing) override;
  void OnRejected(const std::string& reason) override;
  void OnSessionEnd(const std::string& why) override;
  void OnRegionOpen(const std::string& kind, const absl::Status& status) override;
  void OnRegionClose(absl::Duration took) override;
  void OnLayerLoad(const std::string& format, const absl::Status& status,
                   absl::Duration took) override;

  void AddRpc(const std::string& method);  // makes its series
  void OnRpcStarted(const std::string& method);
  void OnRpcFinished(const std::string& method, int code, absl::Duration took);

  const std::shared_ptr<prometheus::Registry>& registry() const { return registry_; }

 private:
  using Counters = MetricChildren<prometheus::Counter>;
  using Histograms = MetricChildren<prometheus::Histogram>;
  Counters MakeCounters(const char* name, const char* help, std::vector<std::string> labels);
  Histograms MakeHistograms(const char* name, const char* help, std::vector<std::string> labels,
                            const prometheus::Histogram::BucketBoundaries& buckets);

  const std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  Counters ops_, rejects_, session_ends_, region_opens_, region_open_failures_, layer_loads_,
      rpc_started_;
  Histograms op_queue_, op_host_, region_close_, layer_load_, rpc_duration_;
};

// Canonical names as gRPC spells them, for example INVALID_ARGUMENT.
std::string CodeName(int code);

}  // namespace gemmd

#endif  // GEMMD_SERVER_METRICS_METRICS_H_
