#include "server/metrics/metrics.h"

#include <utility>

#include "kernels/base/status.h"

namespace gemmd {
namespace {

// Seconds: 5 us to 1 s, where the host side of a request lives.
const prometheus::Histogram::BucketBoundaries kHostBuckets = {
    5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 5e-2, 1e-1, 1};
// Seconds: registering a layer reads and packs gigabytes.
const prometheus::Histogram::BucketBoundaries kLoadBuckets = {0.001, 0.01, 0.1, 0.5, 1,
                                                              2,     5,    10,  30,  60};

constexpr const char* kKinds[] = {"dense", "moe"};

std::string ReasonOrCode(const absl::Status& status) {
  const std::string reason = ReasonOf(status);
  return reason.empty() ? CodeName(static_cast<int>(status.code())) : reason;
}

}  // namespace

std::string CodeName(int code) {
  return absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
}

template <typename Metric>
Metric& MetricChildren<Metric>::Get(const std::vector<std::string>& values) {
  MutexLock lock(mutex_);
  std::vector<std::string> key = values;
  if (children_.size() >= kMaxChildren && children_.count(key) == 0)
    key.assign(names_.size(), "other");
  Metric*& child = children_[key];
  if (child == nullptr) {
    Labels labels;
    for (size_t i = 0; i < names_.size(); ++i) labels[names_[i]] = key[i];
    child = &make_(labels);
  }
  return *child;
}

Metrics::Counters Metrics::MakeCounters(const char* name, const char* help,
                                        std::vector<std::string> labels) {
  auto& family = prometheus::BuildCounter().Name(name).Help(help).Register(*registry_);
  return Counters(std::move(labels), [&family](const Counters::Labels& l) -> prometheus::Counter& {
    return family.Add(l);
  });
}

Metrics::Histograms Metrics::MakeHistograms(
    const char* name, const char* help, std::vector<std::string> labels,
    const prometheus::Histogram::BucketBoundaries& buckets) {
  auto& family = prometheus::BuildHistogram().Name(name).Help(help).Register(*registry_);
  return Histograms(std::move(labels),
                    [&family, buckets](const Histograms::Labels& l) -> prometheus::Histogram& {
                      return family.Add(l, buckets);
                    });
}

Metrics::Metrics(const std::string& version, const std::vector<std::string>& devices)
    : ops_(MakeCounters("gemmd_ops_total", "Requests that ended, by code.",
                        {"device", "kind", "code"})),
      rejects_(MakeCounters("gemmd_rejects_total", "Requests refused before they were queued.",
                            {"reason"})),
      session_ends_(MakeCounters("gemmd_session_ends_total", "Sessions that ended.", {"reason"})),
      region_opens_(MakeCounters("gemmd_region_opens_total", "Regions registered.", {"kind"})),
      region_open_failures_(MakeCounters("gemmd_region_open_failures_total",
                                         "Registrations of regions that failed.", {"reason"})),
      layer_loads_(MakeCounters("gemmd_layer_loads_total", "Registrations of layers that ended.",
                                {"format", "code"})),
      rpc_started_(MakeCounters("gemmd_rpc_started_total", "Calls that began.", {"method"})),
      op_queue_(MakeHistograms("gemmd_op_queue_seconds", "Time from arrival to execution.",
                               {"device", "kind"}, kHostBuckets)),
      op_host_(MakeHistograms("gemmd_op_host_seconds",
                              "Time from the start of execution to its completion.",
                              {"device", "kind"}, kHostBuckets)),
      region_close_(MakeHistograms("gemmd_region_close_seconds",
                                   "Time to release a region's memory.", {}, kHostBuckets)),
      layer_load_(MakeHistograms("gemmd_layer_load_seconds", "Time to register a layer.",
                                 {"format"}, kLoadBuckets)),
      rpc_duration_(MakeHistograms("gemmd_rpc_duration_seconds",
                                   "Time from the arrival of a call to its status.",
                                   {"method", "code"}, kHostBuckets)) {
  prometheus::BuildGauge()
      .Name("gemmd_build_info")
      .Help("Constant 1; the labels say what runs.")
      .Register(*registry_)
      .Add({{"version", version}})
      .Set(1);
  for (const std::string& device : devices) {
    for (const char* kind : kKinds) {
      ops_.Get({device, kind, CodeName(0)});
      op_queue_.Get({device, kind});
      op_host_.Get({device, kind});
    }
  }
  for (const char* why : {"close", "eof", "exit", "expired"}) session_ends_.Get({why});
  for (const char* reason : {"NO_SESSION", "QUEUE_FULL", "QUOTA", "DRAINING"})
    rejects_.Get({reason});
  for (const char* reason : {"BAD_HANDLE_SIZE", "IPC_OPEN_FAILED"})
    region_open_failures_.Get({reason});
  for (const char* format : {"tensors", "gptq", "awq", "compressed-tensors", "fp8", "mxfp4"}) {
    layer_loads_.Get({format, CodeName(0)});
  }
  for (const char* kind : {"cuda_ipc", "memfd", "vmm", "daemon"}) region_opens_.Get({kind});
  region_close_.Get({});
}

void Metrics::OnRequest(const std::string& device, bool moe, absl::StatusCode code,
                        const Timing& timing) {
  const char* kind = kKinds[moe ? 1 : 0];
  ops_.Get({device, kind, CodeName(static_cast<int>(code))}).Increment();
  if (code != absl::StatusCode::kOk) return;  // times of work that ran
  op_queue_.Get({device, kind}).Observe(absl::ToDoubleSeconds(timing.queued));
  op_host_.Get({device, kind}).Observe(absl::ToDoubleSeconds(timing.executed));
}

void Metrics::OnRejected(const std::string& reason) { rejects_.Get({reason}).Increment(); }

void Metrics::OnSessionEnd(const std::string& why) { session_ends_.Get({why}).Increment(); }

void Metrics::OnRegionOpen(const std::string& kind, const absl::Status& status) {
  if (status.ok()) {
    region_opens_.Get({kind}).Increment();
  } else {
    region_open_failures_.Get({ReasonOrCode(status)}).Increment();
  }
}

void Metrics::OnRegionClose(absl::Duration took) {
  region_close_.Get({}).Observe(absl::ToDoubleSeconds(took));
}

void Metrics::OnLayerLoad(const std::string& format, const absl::Status& status,
                          absl::Duration took) {
  layer_loads_.Get({format, CodeName(static_cast<int>(status.code()))}).Increment();
  if (status.ok()) layer_load_.Get({format}).Observe(absl::ToDoubleSeconds(took));
}

void Metrics::AddRpc(const std::string& method) { rpc_started_.Get({method}); }

void Metrics::OnRpcStarted(const std::string& method) { rpc_started_.Get({method}).Increment(); }

void Metrics::OnRpcFinished(const std::string& method, int code, absl::Duration took) {
  rpc_duration_.Get({method, CodeName(code)}).Observe(absl::ToDoubleSeconds(took));
}

}  // namespace gemmd
