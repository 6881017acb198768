#include "server/metrics/snapshot.h"

#include <map>

#include "absl/time/time.h"
#include "server/metrics/family.h"

namespace gemmd {
namespace {

using Families = std::vector<prometheus::MetricFamily>;

void AddDevices(const NodeStatus& status, Families& out) {
  FamilyBuilder ready = Gauge("gemmd_device_ready", "1 when the device takes requests.");
  FamilyBuilder weights = Gauge("gemmd_weights_bytes", "Memory of layers on the device.");
  FamilyBuilder specialised = Counter(
      "gemmd_specialised_total", "Kernels made ready behind layers that are served meanwhile.");
  FamilyBuilder tests = Counter("gemmd_self_tests_total", "Kernels tested before they served.");
  int gpus = 0;
  for (const DeviceStatus& device : status.devices) {
    const bool up = device.health.ok();
    if (up && device.description.kind == DeviceKind::kCuda) ++gpus;
    ready.Add(up ? 1 : 0, {{"device", device.description.id}});
    weights.Add(static_cast<double>(device.weights_bytes), {{"device", device.description.id}});
    if (device.description.kind != DeviceKind::kCuda) continue;
    const DeviceKernelCounts& kernels = device.kernels;
    const auto add = [&device](FamilyBuilder& family, uint64_t count, const char* result) {
      family.Add(static_cast<double>(count),
                 {{"device", device.description.id}, {"result", result}});
    };
    add(specialised, kernels.specialised, "ok");
    add(specialised, kernels.specialised_failed, "failed");
    add(tests, kernels.self_tests - kernels.quarantined, "ok");
    add(tests, kernels.quarantined, "failed");
  }
  out.push_back(Gauge("gemmd_up_gpus", "GPUs that take requests.").Add(gpus).Build());
  out.push_back(ready.Build());
  out.push_back(weights.Build());
  out.push_back(specialised.Build());
  out.push_back(tests.Build());
}

void AddSessions(const Node& node, Families& out) {
  std::map<std::string, int> by_mode = {{"socket", 0}, {"stream", 0}};
  int queued = 0;
  for (const SessionInfo& session : node.ListSessions()) {
    ++by_mode[session.transport];
    queued += session.queued;
  }
  FamilyBuilder sessions = Gauge("gemmd_sessions", "Open sessions, by what keeps them.");
  for (const auto& [mode, count] : by_mode) sessions.Add(count, {{"mode", mode}});
  out.push_back(sessions.Build());
  out.push_back(Gauge("gemmd_queue_depth", "Requests waiting or running.").Add(queued).Build());
}

void AddLayers(const Node& node, const NodeStatus& status, Families& out) {
  std::map<std::string, int> by_device;
  for (const DeviceStatus& device : status.devices) by_device[device.description.id] = 0;
  for (const LayerInfo& layer : node.ListAllLayers()) ++by_device[layer.device];
  FamilyBuilder layers = Gauge("gemmd_layers", "Layers on the device; one content counts once.");
  for (const auto& [device, count] : by_device) layers.Add(count, {{"device", device}});
  out.push_back(layers.Build());
  out.push_back(Gauge("gemmd_layer_references", "References that sessions hold on layers.")
                    .Add(status.layer_references)
                    .Build());
}

void AddRegions(const NodeStatus& status, Families& out) {
  out.push_back(Gauge("gemmd_regions", "Registered regions.").Add(status.regions).Build());
  out.push_back(Gauge("gemmd_region_bytes", "Bytes of registered regions.")
                    .Add(static_cast<double>(status.region_bytes))
                    .Build());
  out.push_back(
      Gauge("gemmd_region_closing", "Memory objects being released.").Add(status.closing).Build());
  out.push_back(Gauge("gemmd_region_oldest_close_seconds", "Age of the oldest release under way.")
                    .Add(absl::ToDoubleSeconds(status.oldest_close))
                    .Build());
}

void AddLog(const LogCounts& counts, Families& out) {
  FamilyBuilder messages = Counter("gemmd_log_messages_total", "Lines logged, by level.");
  for (const auto& [level, count] : counts.messages) {
    messages.Add(static_cast<double>(count), {{"level", level}});
  }
  out.push_back(messages.Build());
  out.push_back(Counter("gemmd_log_dropped_total", "Lines lost to a full queue.")
                    .Add(static_cast<double>(counts.dropped))
                    .Build());
}

}  // namespace

std::vector<prometheus::MetricFamily> Snapshot::Collect() const {
  const NodeStatus status = node_->Status();
  Families out;
  AddDevices(status, out);
  AddSessions(*node_, out);
  AddLayers(*node_, status, out);
  AddRegions(status, out);
  out.push_back(
      Gauge("gemmd_draining", "1 while the daemon stops.").Add(status.draining ? 1 : 0).Build());
  AddLog(log_counts_(), out);
  for (prometheus::MetricFamily& family : ProcessFamilies()) out.push_back(std::move(family));
  return out;
}

}  // namespace gemmd
