#include "server/daemon.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status.h"
#include "server/cache_log.h"
#include "server/connections.h"
#include "server/descriptors.h"
#include "server/devices.h"
#include "server/exit_codes.h"
#include "server/logging.h"
#include "server/metrics/kernel_metrics.h"
#include "server/paths.h"
#include "server/version.h"

namespace gemmd {
namespace {

// Clients that are busy get this long to meet DRAINING, which says when to come back. A call that
// comes later finds its connection closed.
constexpr absl::Duration kLastCallGrace = absl::Milliseconds(100);
// KeepSession streams get this long to carry their last answer, connections this long to close. All
// graces together stay below that of run.cc.
constexpr absl::Duration kStreamGrace = absl::Milliseconds(200);
constexpr absl::Duration kCloseGrace = absl::Milliseconds(500);
// Requests that the drain's deadline cut off get this long to stop and to carry their answer.
constexpr absl::Duration kAnswerGrace = absl::Milliseconds(1500);
// What still runs then, a kernel for example, is cancelled after this.
constexpr absl::Duration kShutdownGrace = absl::Milliseconds(500);

// One that takes no new kernels still serves those it has.
absl::Status MakeCache(const std::filesystem::path& directory) {
  GEMMD_RETURN_IF_ERROR(MakeDirectory(directory));
  if (access(directory.c_str(), R_OK | X_OK) == 0) return absl::OkStatus();
  return SystemError(errno, absl::StrCat("cannot read cache directory ", directory.string()));
}

// A directory that nobody chose may be out of reach, or have no place: the cache then works from memory, and warns.
absl::Status PrepareCache(const LoadedConfig& config) {
  if (config.config.cache_dir.empty()) return absl::OkStatus();
  const auto is_default = [](const ConfigEntry& entry) {
    return entry.name == "cache_dir" && entry.origin == "default";
  };
  const absl::Status made = MakeCache(config.config.cache_dir);
  return std::any_of(config.entries.begin(), config.entries.end(), is_default) ? absl::OkStatus() : made;
}

std::shared_ptr<TuningStore> OpenTuning(const std::filesystem::path& cache_directory) {
  auto store = TuningStore::Open(
      {.directory = cache_directory.empty() ? cache_directory : cache_directory / "tuning",
       .gemmd_version = Version()});
  const TuningNotes& notes = store->notes();
  for (const std::string& warning : notes.warnings) LogWarn("tuning", {{"warning", warning}});
  LogInfo("tuning loaded", {{"local", notes.local},
                            {"built_in", notes.built_in},
                            {"stale", notes.stale},
                            {"damaged", notes.damaged}});
  return store;
}

LogCounts CountLog() {
  LogCounts counts;
  const char* const names[kLogLevels] = {"trace", "debug", "info", "warn", "error"};
  for (int i = 0; i < kLogLevels; ++i) {
    counts.messages.emplace_back(names[i], LogMessages(static_cast<LogLevel>(i)));
  }
  counts.dropped = LogDropped();
  return counts;
}

}  // namespace

Daemon::Daemon(LoadedConfig config, std::function<void(absl::Duration)> request_drain)
    : config_(std::move(config)), log_level_(config_.config.log_level) {
  context_.config = &config_;
  context_.open_calls = &open_calls_;
  context_.log_level = &log_level_;
  context_.note_log = &note_log_;
  context_.started = absl::Now();
  context_.request_drain = std::move(request_drain);
}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(
    LoadedConfig config, std::function<void(absl::Duration)> request_drain) {
  std::unique_ptr<Daemon> self(new Daemon(std::move(config), std::move(request_drain)));
  self->Warn();
  GEMMD_RETURN_IF_ERROR(self->LockPaths());
  GEMMD_RETURN_IF_ERROR(PrepareCache(self->config_));
  GEMMD_RETURN_IF_ERROR(self->OpenNode());
  GEMMD_RETURN_IF_ERROR(self->StartMetrics());
  GEMMD_RETURN_IF_ERROR(self->StartServing());
  return self;
}

void Daemon::Warn() const {
  for (const std::string& warning : config_.warnings) LogWarn(warning);
  for (const auto& [root, why] : UnusableRoots(config())) {
    LogWarn("a directory of checkpoint_roots cannot be used", {{"path", root}, {"error", why}});
  }
}

absl::Status Daemon::LockPaths() {
  for (const std::string* path : {&config().socket, &config().session_socket}) {
    GEMMD_ASSIGN_OR_RETURN(InstanceLock lock, InstanceLock::Acquire(*path));
    locks_.push_back(std::move(lock));
  }
  return absl::OkStatus();
}

absl::Status Daemon::OpenNode() {
  GEMMD_ASSIGN_OR_RETURN(context_.kernels,
                         KernelStore::Open({.directory = config().cache_dir,
                                            .why_no_directory = config().no_cache_dir,
                                            .max_bytes = config().cache_max_bytes,
                                            .compile_helper = config().compile_helper,
                                            .compile_workers = config().compile_workers,
                                            .max_bundle_bytes = config().max_bundle_bytes,
                                            .observer = LogCacheEvent}));
  const std::string warning = context_.kernels->stats().warning;
  if (!warning.empty()) LogWarn("kernel cache", {{"warning", warning}});
  context_.tuning = OpenTuning(config().cache_dir);
  GEMMD_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<Device>> devices,
                         OpenDevices(config(), *context_.kernels, context_.tuning,
                                     [this](const KernelNotice& notice) { OnKernel(notice); }));
  std::vector<std::string> ids;
  for (const auto& device : devices) ids.push_back(device->description().id);
  metrics_ = std::make_unique<Metrics>(Version(), ids);
  NodeOptions options = config().node;
  options.max_tickets = TicketBudget(RaiseDescriptorLimit());
  node_ = std::make_unique<Node>(std::move(options), std::move(devices), metrics_.get());
  keep_streams_ = std::make_unique<KeepStreams>(node_.get());
  context_.node = node_.get();
  context_.metrics = metrics_.get();
  context_.keep_streams = keep_streams_.get();
  context_.collectables = {metrics_->registry(), std::make_shared<Snapshot>(node_.get(), CountLog),
                           std::make_shared<KernelMetrics>(context_.kernels)};
  return absl::OkStatus();
}

absl::Status Daemon::StartMetrics() {
  if (config().metrics_address.empty()) return absl::OkStatus();
  auto endpoint = MetricsEndpoint::Start(config().metrics_address, context_.collectables);
  if (!endpoint.ok()) {
    return Error(absl::StatusCode::kUnavailable, kCannotCreate, endpoint.status().message());
  }
  endpoint_ = *std::move(endpoint);
  context_.metrics_address = endpoint_->address();
  return absl::OkStatus();
}

absl::Status Daemon::StartServing() {
  GEMMD_ASSIGN_OR_RETURN(
      session_socket_, SessionSocket::Start(config().session_socket, node_.get(), metrics_.get()));
  GEMMD_ASSIGN_OR_RETURN(server_, GrpcServer::Start(config().socket, &context_));
  LogInfo(absl::StrCat("listening on ", config().socket),
          {{"version", Version()},
           {"pid", getpid()},
           {"session_socket", config().session_socket},
           {"metrics", context_.metrics_address},
           {"start_ms", absl::ToInt64Milliseconds(absl::Now() - context_.started)}});
  compiler_search_ = std::thread([this] { LogCompiler(context_.kernels->FindCompiler()); });
  return absl::OkStatus();
}

Daemon::~Daemon() {
  if (server_ != nullptr) Stop(absl::Now());
  session_socket_.reset();
  endpoint_.reset();
  context_.collectables.clear();  // they point to the node
  keep_streams_.reset();
  node_.reset();
}

void Daemon::OnKernel(const KernelNotice& notice) {
  if (notice.armed.empty()) return;
  MutexLock lock(armed_mutex_);
  armed_.push_back(notice);
}

void Daemon::TellArmedKernels() {
  std::vector<KernelNotice> armed;
  {
    MutexLock lock(armed_mutex_);
    armed.swap(armed_);
  }
  for (const KernelNotice& notice : armed) keep_streams_->NotifyNumerics(notice.device, notice.armed);
}

absl::Status Daemon::Tick() {
  log_level_.Tick(absl::Now());
  TellArmedKernels();
  const NodeStatus status = node_->Status();
  server_->UpdateHealth(status);
  for (const DeviceStatus& device : status.devices) {
    if (device.health.code() == absl::StatusCode::kDataLoss) return device.health;
  }
  return absl::OkStatus();
}

void Daemon::EndSessions() {
  session_socket_.reset();  // ends its sessions
  keep_streams_->FinishAll(absl::Now() + kStreamGrace);
  node_->EndSessions("close");  // streams that take no last answer, sessions without one
  if (!open_calls_.FinishAll(absl::Now() + kAnswerGrace)) {
    LogWarn("calls are cut off before they are answered");
  }
}

void Daemon::Stop(absl::Time deadline) {
  NodeStatus status = node_->Status();
  status.draining = true;
  server_->UpdateHealth(status);
  keep_streams_->NotifyDraining();
  LogInfo("draining", {{"sessions", status.sessions},
                       {"deadline_ms", absl::ToInt64Milliseconds(deadline - absl::Now())}});
  const absl::Status drained = node_->Drain(deadline);
  if (!drained.ok()) LogWarn("drain ended early", {{"error", std::string(drained.message())}});
  context_.kernels->Close();  // nobody needs what still compiles
  compiler_search_.join();
  if (status.sessions > 0) absl::SleepFor(kLastCallGrace);
  EndSessions();
  if (!CloseConnections(config().socket, absl::Now() + kCloseGrace)) {
    LogWarn("connections are left; calls that still come get CANCELLED");
  }
  server_->Shutdown(absl::Now() + kShutdownGrace);
  server_.reset();
  LogInfo("stopped serving", {{"drained", drained.ok() ? "yes" : "no"}});
}

}  // namespace gemmd
