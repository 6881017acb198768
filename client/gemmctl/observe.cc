// What    status, devices, layers, sessions, config, metrics, drain: one admin call and its table
//         each.
#include <optional>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "client/gemmctl/command.h"
#include "client/gemmctl/daemon_process.h"
#include "client/gemmctl/format_text.h"
#include "client/gemmctl/proto_json.h"
#include "client/gemmctl/table.h"
#include "kernels/base/status.h"

namespace gemmd::gemmctl {
namespace {

std::string AgeText(uint64_t seconds) { return absl::FormatDuration(absl::Seconds(seconds)); }

std::string HexId(uint64_t id) { return absl::StrCat(absl::Hex(id, absl::kZeroPad16)); }

Table DevicesTable(const google::protobuf::RepeatedPtrField<v1::DeviceInfo>& devices) {
  Table table({"DEVICE", "NAME", "ARCH", "SMs", "MEMORY", "WEIGHTS", "STATE"});
  for (const v1::DeviceInfo& device : devices) {
    table.Add({device.id(), device.name(), device.architecture(),
               absl::StrCat(device.multiprocessors()), BytesText(device.memory_bytes()),
               BytesText(device.weights_bytes()),
               device.ready() ? "ready" : "not ready: " + device.not_ready_reason()});
  }
  return table;
}

std::string CompilerText(const v1::GetStatusResponse& status) {
  if (!status.compiler().empty()) {
    return absl::StrCat("NVRTC ", status.compiler(), ", ", status.compiler_path());
  }
  return status.compiler_problem().empty() ? "being looked for"
                                           : "none: " + status.compiler_problem();
}

absl::StatusOr<int> RunStatus(const Context& context, const Arguments&) {
  GEMMD_ASSIGN_OR_RETURN(const client::Admin admin, context.OpenAdmin());
  GEMMD_ASSIGN_OR_RETURN(const v1::GetStatusResponse status, admin.Status());
  if (context.json) {
    context.PrintJson(ToJson(status));
    return kDone;
  }
  context.Print(absl::StrCat("gemmd ", status.version(), ", pid ", status.pid(), ", up ",
                             AgeText(status.uptime_seconds()),
                             status.draining() ? ", DRAINING" : "", ", at ", admin.address().Text(),
                             "\n\n", DevicesTable(status.devices()).Text()));
  Table table({"", ""});
  table.Add({"sessions", absl::StrCat(status.sessions())});
  table.Add(
      {"layers", absl::StrCat(status.layers(), " (", status.layer_references(), " references)")});
  table.Add(
      {"regions", absl::StrCat(status.regions(), " (", BytesText(status.region_bytes()), ")")});
  table.Add({"requests", absl::StrCat(status.requests_total())});
  table.Add({"metrics", status.metrics_address().empty()
                            ? "off"
                            : "http://" + status.metrics_address() + "/metrics"});
  table.Add({"cache", status.cache_in_memory_only()      ? "in memory only"
                      : status.cache_directory().empty() ? "off"
                                                         : status.cache_directory()});
  if (!status.cache_warning().empty()) table.Add({"", "warning: " + status.cache_warning()});
  table.Add({"compiler", CompilerText(status)});
  context.Print(table.Text());
  return kDone;
}

absl::StatusOr<int> RunDevices(const Context& context, const Arguments&) {
  GEMMD_ASSIGN_OR_RETURN(const client::Admin admin, context.OpenAdmin());
  GEMMD_ASSIGN_OR_RETURN(const v1::HelloResponse hello, admin.Greet());
  if (context.json) {
    nlohmann::ordered_json devices = nlohmann::ordered_json::array();
    for (const v1::DeviceInfo& device : hello.devices()) devices.push_back(ToJson(device));
    context.PrintJson(devices);
  } else {
    context.Print(DevicesTable(hello.devices()).Text());
  }
  return kDone;
}

absl::StatusOr<int> RunLayers(const Context& context, const Arguments&) {
  GEMMD_ASSIGN_OR_RETURN(const client::Admin admin, context.OpenAdmin());
  GEMMD_ASSIGN_OR_RETURN(const v1::ListAllLayersResponse response, admin.Layers());
  if (context.json) {
    context.PrintJson(ToJson(response)["layers"]);
    return kDone;
  }
  Table table({"DIGEST", "NAME", "DEVICE", "FORMAT", "WEIGHT", "SCALE", "E", "N", "K", "BYTES",
               "CLIENTS", "STATE"});
  for (const v1::LayerInfo& layer : response.layers()) {
    table.Add({layer.digest().substr(0, 12), layer.name(), layer.device(), SourceText(layer),
               FormatText(layer.spec().weight(), "-"), FormatText(layer.spec().scale(), "-"),
               absl::StrCat(layer.experts()), absl::StrCat(layer.n()), absl::StrCat(layer.k()),
               BytesText(layer.bytes()), absl::StrCat(layer.references()), layer.state()});
  }
  context.Print(table.Text());
  if (response.truncated()) context.Print("... and more: the daemon lists no more at once\n");
  return kDone;
}

absl::StatusOr<int> RunSessions(const Context& context, const Arguments&) {
  GEMMD_ASSIGN_OR_RETURN(const client::Admin admin, context.OpenAdmin());
  GEMMD_ASSIGN_OR_RETURN(const v1::ListSessionsResponse response, admin.Sessions());
  if (context.json) {
    context.PrintJson(ToJson(response)["sessions"]);
    return kDone;
  }
  Table table({"SESSION", "NAME", "PID", "UID", "VIA", "LAYERS", "REGIONS", "BYTES", "REQUESTS",
               "QUEUED", "AGE"});
  for (const v1::SessionInfo& session : response.sessions()) {
    // Only the session socket tells who its client is.
    const bool known = session.transport() != "stream";
    table.Add({HexId(session.session_id()), session.name(),
               known && session.pid() != 0 ? absl::StrCat(session.pid()) : "-",
               known ? absl::StrCat(session.uid()) : "-", session.transport(),
               absl::StrCat(session.layers()), absl::StrCat(session.regions()),
               BytesText(session.region_bytes()), absl::StrCat(session.requests()),
               absl::StrCat(session.queued()), AgeText(session.age_seconds())});
  }
  context.Print(table.Text());
  if (response.truncated()) context.Print("... and more: the daemon lists no more at once\n");
  return kDone;
}

absl::StatusOr<int> RunConfig(const Context& context, const Arguments&) {
  GEMMD_ASSIGN_OR_RETURN(const client::Admin admin, context.OpenAdmin());
  GEMMD_ASSIGN_OR_RETURN(const v1::GetConfigResponse response, admin.Config());
  if (context.json) {
    context.PrintJson(ToJson(response)["values"]);
    return kDone;
  }
  Table table({"NAME", "VALUE", "FROM"});
  for (const v1::ConfigValue& value : response.values()) {
    table.Add({value.name(), value.value(), value.origin()});
  }
  context.Print(table.Text());
  return kDone;
}

absl::StatusOr<int> RunMetrics(const Context& context, const Arguments&) {
  GEMMD_ASSIGN_OR_RETURN(const client::Admin admin, context.OpenAdmin());
  GEMMD_ASSIGN_OR_RETURN(const v1::GetMetricsResponse response, admin.Metrics());
  if (context.json) {
    context.PrintJson(ToJson(response));
  } else {
    context.Print(response.text());
  }
  return kDone;
}

// Whether the daemon with that boot id does not answer any more.
bool IsGone(const client::Admin& admin, uint64_t boot_id) {
  const absl::StatusOr<v1::HelloResponse> hello = admin.Greet();
  return !hello.ok() || hello->boot_id() != boot_id;
}

// Returns once the process has ended, so that another daemon can take its place; where the process cannot
// be seen from here, once it does not answer.
absl::StatusOr<int> WaitForExit(const Context& context, const client::Admin& admin,
                                const std::optional<DaemonProcess>& process, uint64_t boot_id,
                                absl::Time until) {
  bool stopped = process.has_value() && process->Ended(until);
  while (!process.has_value() && !stopped && absl::Now() < until) {
    stopped = IsGone(admin, boot_id);
    if (!stopped) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  if (!stopped) return absl::DeadlineExceededError("the daemon has not ended; see its log");
  if (!context.json) context.Print("stopped\n");
  return kDone;
}

absl::StatusOr<int> RunDrain(const Context& context, const Arguments& arguments) {
  GEMMD_ASSIGN_OR_RETURN(const int64_t seconds, arguments.Integer("deadline", 0, 3600));
  GEMMD_ASSIGN_OR_RETURN(const client::Admin admin, context.OpenAdmin());
  GEMMD_ASSIGN_OR_RETURN(const v1::HelloResponse hello, admin.Greet());
  const std::optional<DaemonProcess> process = DaemonProcess::ListeningAt(admin.address().path);
  GEMMD_RETURN_IF_ERROR(admin.Drain(absl::Seconds(seconds)));
  if (context.json) {
    context.PrintJson(nlohmann::ordered_json{{"draining", true}});
  } else {
    context.Print("draining\n");
  }
  if (!arguments.Has("wait")) return kDone;
  return WaitForExit(context, admin, process, hello.boot_id(),
                     absl::Now() + absl::Seconds(seconds == 0 ? 120 : seconds + 10));
}

}  // namespace

Command StatusCommand() {
  return {.name = "status",
          .summary = "what the daemon is, holds and has done",
          .description =
              "  Version, devices, numbers of sessions, layers and regions, requests so far, and "
              "where\n"
              "  metrics and the kernel cache are.",
          .examples = "  gemmctl status\n  gemmctl status -o json | jq .layer_references",
          .run = RunStatus};
}

Command DevicesCommand() {
  return {.name = "devices",
          .summary = "devices of the daemon, best first",
          .description =
              "  A device is named \"cpu\" or \"cuda:<GPU UUID>\". The first one is taken when a "
              "client names\n"
              "  none. Needs no rights.",
          .examples = "  gemmctl devices",
          .run = RunDevices};
}

Command LayersCommand() {
  return {.name = "layers",
          .summary = "layers of every session",
          .description =
              "  One line per content and device, however many clients registered it; CLIENTS "
              "counts the\n"
              "  sessions that hold it, FORMAT has what they registered it from.",
          .examples = "  gemmctl layers\n  gemmctl layers -o json | jq '.[].digest'",
          .run = RunLayers};
}

Command SessionsCommand() {
  return {.name = "sessions",
          .summary = "client processes",
          .description =
              "  VIA says how the session is kept: \"socket\" by the session socket, \"stream\" by "
              "a gRPC stream.",
          .examples = "  gemmctl sessions",
          .run = RunSessions};
}

Command ConfigCommand() {
  return {.name = "config",
          .summary = "effective configuration and where each value comes from",
          .description = "  FROM is default, file, environment or flag.",
          .examples = "  gemmctl config",
          .run = RunConfig};
}

Command MetricsCommand() {
  return {.name = "metrics",
          .summary = "the text that the Prometheus endpoint serves",
          .description = "  Works when the endpoint is off or out of reach.",
          .examples = "  gemmctl metrics | grep gemmd_ops_total",
          .run = RunMetrics};
}

Command DrainCommand() {
  return {.name = "drain",
          .summary = "let the daemon finish its work and stop",
          .description =
              "  New sessions, layers and requests are refused, queued requests finish, then the "
              "daemon exits.",
          .options = {{"deadline", 0, "SECONDS", "0",
                       "how long work may take, up to 3600; 0 = the daemon's own setting"},
                      {"wait", 0, "", "",
                       "return when the daemon's process has ended: its lock is free, its memory too"}},
          .examples = "  gemmctl drain --wait",
          .run = RunDrain};
}

}  // namespace gemmd::gemmctl
