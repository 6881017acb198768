#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/session/session.h"
#include "gemmd/v1/admin.grpc.pb.h"
#include "server/admin_calls.h"
#include "server/convert.h"
#include "server/convert_errors.h"
#include "server/kernel_admin.h"
#include "server/listing.h"
#include "server/services.h"
#include "server/settings.h"
#include "server/status.h"
#include "server/tuning_admin.h"
#include "server/version.h"

namespace gemmd {
namespace {

constexpr uint32_t kMaxDrainSeconds = 3600;

class AdminService final : public v1::AdminService::CallbackService {
 public:
  explicit AdminService(const ServiceContext* context)
      : context_(*context), kernels_(context), tuning_(context) {}

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* call,
                                      const v1::GetStatusRequest*,
                                      v1::GetStatusResponse* response) override {
    FillStatus(*response);
    return Reply(call, absl::OkStatus());
  }

  grpc::ServerUnaryReactor* ListSessions(grpc::CallbackServerContext* call,
                                         const v1::ListSessionsRequest*,
                                         v1::ListSessionsResponse* response) override {
    response->set_truncated(
        FillList(context_.node->ListSessions(), kMaxListedSessions, *response->mutable_sessions()));
    return Reply(call, absl::OkStatus());
  }

  grpc::ServerUnaryReactor* ListAllLayers(grpc::CallbackServerContext* call,
                                          const v1::ListAllLayersRequest*,
                                          v1::ListAllLayersResponse* response) override {
    response->set_truncated(
        FillList(context_.node->ListAllLayers(), kMaxListedLayers, *response->mutable_layers()));
    return Reply(call, absl::OkStatus());
  }

  grpc::ServerUnaryReactor* GetConfig(grpc::CallbackServerContext* call,
                                      const v1::GetConfigRequest*,
                                      v1::GetConfigResponse* response) override {
    for (const ConfigEntry& entry : context_.config->entries) {
      v1::ConfigValue* value = response->add_values();
      value->set_name(entry.name);
      value->set_value(entry.value);
      value->set_origin(entry.origin);
    }
    return Reply(call, absl::OkStatus());
  }

  grpc::ServerUnaryReactor* GetMetrics(grpc::CallbackServerContext*, const v1::GetMetricsRequest*,
                                       v1::GetMetricsResponse* response) override {
    return DeferCall(context_, metrics_worker_, absl::OkStatus(), [this, response] {
      response->set_text(MetricsText(context_.collectables));  // looks at the disk
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* SetLogLevel(grpc::CallbackServerContext* call,
                                        const v1::SetLogLevelRequest* request,
                                        v1::SetLogLevelResponse*) override {
    return Reply(call, ChangeLogLevel(*call, *request));
  }

  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* call,
                                  const v1::DrainRequest* request, v1::DrainResponse*) override {
    return Reply(call, StartDrain(*call, request->deadline_seconds()));
  }

  grpc::ServerWriteReactor<v1::PrewarmProgress>* Prewarm(
      grpc::CallbackServerContext* call, const v1::PrewarmRequest* request) override {
    return kernels_.Prewarm(CheckOperator(*call), *request);
  }
  grpc::ServerUnaryReactor* ListCache(grpc::CallbackServerContext*,
                                      const v1::ListCacheRequest* request,
                                      v1::ListCacheResponse* response) override {
    return kernels_.List(*request, response);
  }
  grpc::ServerUnaryReactor* VerifyCache(grpc::CallbackServerContext* call,
                                        const v1::VerifyCacheRequest*,
                                        v1::VerifyCacheResponse* response) override {
    return kernels_.Verify(CheckOperator(*call), response);
  }
  grpc::ServerUnaryReactor* PurgeCache(grpc::CallbackServerContext* call,
                                       const v1::PurgeCacheRequest* request,
                                       v1::PurgeCacheResponse* response) override {
    return kernels_.Purge(CheckOperator(*call), *request, response);
  }
  grpc::ServerWriteReactor<v1::CacheChunk>* ExportCache(
      grpc::CallbackServerContext* call, const v1::ExportCacheRequest* request) override {
    return kernels_.Export(CheckOperator(*call), *request);
  }
  grpc::ServerReadReactor<v1::CacheChunk>* ImportCache(grpc::CallbackServerContext* call,
                                                       v1::ImportCacheResponse* response) override {
    return kernels_.Import(CheckOperator(*call), response);
  }

  grpc::ServerWriteReactor<v1::TuneProgress>* Tune(grpc::CallbackServerContext* call,
                                                   const v1::TuneRequest* request) override {
    return tuning_.Tune(CheckOperator(*call), *request);
  }
  grpc::ServerUnaryReactor* ListTuning(grpc::CallbackServerContext* call,
                                       const v1::ListTuningRequest*,
                                       v1::ListTuningResponse* response) override {
    tuning_.List(response);
    return Reply(call, absl::OkStatus());
  }
  grpc::ServerWriteReactor<v1::CacheChunk>* ExportTuning(
      grpc::CallbackServerContext*, const v1::ExportTuningRequest*) override {
    return tuning_.Export();
  }
  grpc::ServerUnaryReactor* ImportTuning(grpc::CallbackServerContext* call,
                                         const v1::ImportTuningRequest* request,
                                         v1::ImportTuningResponse* response) override {
    return tuning_.Import(CheckOperator(*call), *request, response);
  }

 private:
  void FillStatus(v1::GetStatusResponse& to) const {
    const NodeStatus status = context_.node->Status();
    to.set_version(Version());
    to.set_pid(static_cast<uint32_t>(getpid()));
    to.set_boot_id(context_.node->boot_id());
    to.set_uptime_seconds(static_cast<uint64_t>(
        std::max<int64_t>(0, absl::ToInt64Seconds(absl::Now() - context_.started))));
    to.set_draining(status.draining);
    for (const DeviceStatus& device : status.devices) *to.add_devices() = ToProto(device);
    to.set_sessions(static_cast<uint32_t>(status.sessions));
    to.set_layers(static_cast<uint32_t>(status.layers));
    to.set_layer_references(static_cast<uint64_t>(status.layer_references));
    to.set_regions(static_cast<uint32_t>(status.regions));
    to.set_region_bytes(status.region_bytes);
    to.set_requests_total(status.requests_total);
    to.set_metrics_address(context_.metrics_address);
    to.set_cache_directory(context_.config->config.cache_dir.string());
    to.set_cache_warning(context_.kernels->warning());
    to.set_cache_in_memory_only(context_.kernels->in_memory_only());
    const StoreCompiler compiler = context_.kernels->compiler();
    to.set_compiler(compiler.name);
    to.set_compiler_path(compiler.path);
    to.set_compiler_problem(compiler.problem);
  }

  // The kernel vouches for the user of a session on the session socket; gRPC vouches for nobody.
  absl::Status CheckOperator(const grpc::CallbackServerContext& call) const {
    GEMMD_ASSIGN_OR_RETURN(const auto session, context_.SessionOf(call));
    const SessionIdentity& identity = session->identity();
    if (identity.transport == "socket" && IsOperator(identity.uid)) return absl::OkStatus();
    return context_.Refuse(
        Error(absl::StatusCode::kPermissionDenied, "ROLE_REQUIRED",
              "this call needs a session of the session socket whose user is root, the "
              "daemon's own or one of admin_uids"));
  }

  bool IsOperator(uid_t uid) const {
    const std::vector<uid_t>& admins = context_.config->config.admin_uids;
    return uid == 0 || uid == geteuid() ||
           std::find(admins.begin(), admins.end(), uid) != admins.end();
  }

  absl::Status ChangeLogLevel(const grpc::CallbackServerContext& call,
                              const v1::SetLogLevelRequest& request) const {
    GEMMD_RETURN_IF_ERROR(CheckOperator(call));
    Config parsed;
    const absl::Status known = FindSetting("log_level")->set(parsed, {request.level()});
    if (!known.ok()) {
      return context_.Refuse(Error(absl::StatusCode::kInvalidArgument, "OUT_OF_RANGE",
                                   absl::StrCat("level: ", known.message())));
    }
    const uint32_t seconds = request.revert_after_seconds();
    context_.log_level->Set(parsed.log_level, seconds == 0 ? absl::InfiniteFuture()
                                                           : absl::Now() + absl::Seconds(seconds));
    LogInfo("log level changed", {{"to", request.level()}, {"revert_after_seconds", seconds}});
    return absl::OkStatus();
  }

  absl::Status StartDrain(const grpc::CallbackServerContext& call, uint32_t seconds) const {
    GEMMD_RETURN_IF_ERROR(CheckOperator(call));
    if (seconds > kMaxDrainSeconds) {
      return context_.Refuse(
          OutOfRange("deadline_seconds", seconds, absl::StrCat("at most ", kMaxDrainSeconds)));
    }
    context_.request_drain(seconds == 0 ? context_.config->config.drain_deadline
                                        : absl::Seconds(seconds));
    return absl::OkStatus();
  }

  const ServiceContext& context_;
  AdminWorker metrics_worker_{256, "readings of the metrics"};
  KernelAdmin kernels_;
  TuningAdmin tuning_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeAdminService(const ServiceContext* context) {
  return std::make_unique<AdminService>(context);
}

}  // namespace gemmd
