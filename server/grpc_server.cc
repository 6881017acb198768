#include "server/grpc_server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/exit_codes.h"
#include "server/rpc_observer.h"
#include "server/services.h"

namespace gemmd {
namespace {

constexpr char kGemmServiceName[] = "gemmd.v1.GemmService";
// A client may ping an idle connection every 10 seconds; half of that leaves room for late timers.
constexpr int kMinPingMilliseconds = 5000;
constexpr int kMaxStreamsPerConnection = 1024;
constexpr size_t kMessageMemoryBytes = size_t{1} << 30;  // a bound on what slow clients can hold
constexpr int kMaxThreads = 256;

void EnablePlugins() {
  static std::once_flag once;  // the plugins are global
  std::call_once(once, [] {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
}

void SetLimits(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinPingMilliseconds);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  grpc::ResourceQuota quota("gemmd");
  quota.Resize(kMessageMemoryBytes).SetMaxThreads(kMaxThreads);
  builder.SetResourceQuota(quota);
}

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const std::string& socket,
                                                              const ServiceContext* context) {
  EnablePlugins();
  std::unique_ptr<GrpcServer> self(new GrpcServer);
  self->services_.push_back(MakeSessionService(context));
  self->services_.push_back(MakeRegionService(context));
  self->services_.push_back(MakeLayerService(context));
  self->services_.push_back(MakeModelService(context));
  self->services_.push_back(MakeGemmService(context));
  self->services_.push_back(MakeAdminService(context));
  self->services_.push_back(MakeProgramService());
  self->services_.push_back(MakeAttachService());
  grpc::ServerBuilder builder;
  SetLimits(builder);
  int bound = 0;  // 1 for a Unix socket that could be bound
  builder.AddListeningPort(absl::StrCat("unix:", socket), grpc::InsecureServerCredentials(),
                           &bound);
  for (const auto& service : self->services_) builder.RegisterService(service.get());
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> observers;
  observers.push_back(std::make_unique<RpcObserverFactory>(context->metrics));
  builder.experimental().SetInterceptorCreators(std::move(observers));
  self->server_ = builder.BuildAndStart();
  if (self->server_ == nullptr || bound == 0) {
    return Error(absl::StatusCode::kUnavailable, kCannotCreate,
                 absl::StrCat("cannot create socket ", socket));
  }
  if (chmod(socket.c_str(), 0660) != 0) {
    return SystemError(errno, absl::StrCat("cannot set the mode of ", socket));
  }
  self->UpdateHealth(context->node->Status());
  return self;
}

void GrpcServer::UpdateHealth(const NodeStatus& status) {
  grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
  bool any = false;
  for (const DeviceStatus& device : status.devices) {
    const bool serving = device.health.ok() && !status.draining;
    health->SetServingStatus(absl::StrCat("device/", device.description.id), serving);
    any = any || serving;
  }
  health->SetServingStatus(kGemmServiceName, any);
  health->SetServingStatus("", !status.draining);
}

void GrpcServer::Shutdown(absl::Time deadline) { server_->Shutdown(absl::ToChronoTime(deadline)); }

}  // namespace gemmd
