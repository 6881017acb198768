#include "client/admin.h"

#include "absl/time/clock.h"
#include "client/retry.h"
#include "client/rpc_status.h"
#include "kernels/base/status.h"

namespace gemmd::client {
namespace {

template <typename Request, typename Response>
using Method = grpc::Status (v1::AdminService::Stub::*)(grpc::ClientContext*, const Request&,
                                                        Response*);

template <typename Request, typename Response>
absl::StatusOr<Response> Call(const Channel& channel, absl::Duration timeout, const char* name,
                              Method<Request, Response> method, const Request& request) {
  GEMMD_RETURN_IF_ERROR(channel.Usable());
  const absl::Time deadline = absl::Now() + timeout;
  Backoff backoff(RetryPolicy{});
  while (true) {
    grpc::ClientContext context;
    SetDeadline(context, deadline);
    Response response;
    const absl::Status status =
        FromGrpc((channel.stubs().admin.get()->*method)(&context, request, &response), name);
    if (status.ok()) return response;
    if (IsTransportFailure(status)) return NotReached(channel, status);
    if (!backoff.Wait(status, deadline)) return status;
  }
}

}  // namespace

absl::StatusOr<Admin> Admin::Open(const std::string& address, absl::Duration timeout) {
  GEMMD_ASSIGN_OR_RETURN(Address resolved, ResolveAddress(address));
  return Admin(std::make_unique<Channel>(std::move(resolved)), timeout);
}

absl::StatusOr<v1::HelloResponse> Admin::Greet() const {
  return Hello(*channel_, absl::Now() + timeout_);
}

absl::StatusOr<v1::GetStatusResponse> Admin::Status() const {
  return Call(*channel_, timeout_, "GetStatus", &v1::AdminService::Stub::GetStatus, v1::GetStatusRequest());
}

absl::StatusOr<v1::ListSessionsResponse> Admin::Sessions() const {
  return Call(*channel_, timeout_, "ListSessions", &v1::AdminService::Stub::ListSessions,
              v1::ListSessionsRequest());
}

absl::StatusOr<v1::ListAllLayersResponse> Admin::Layers() const {
  return Call(*channel_, timeout_, "ListAllLayers", &v1::AdminService::Stub::ListAllLayers,
              v1::ListAllLayersRequest());
}

absl::StatusOr<v1::GetConfigResponse> Admin::Config() const {
  return Call(*channel_, timeout_, "GetConfig", &v1::AdminService::Stub::GetConfig, v1::GetConfigRequest());
}

absl::StatusOr<v1::GetMetricsResponse> Admin::Metrics() const {
  return Call(*channel_, timeout_, "GetMetrics", &v1::AdminService::Stub::GetMetrics, v1::GetMetricsRequest());
}

absl::StatusOr<v1::ListCacheResponse> Admin::ListCache(const v1::ListCacheRequest& request) const {
  return Call(*channel_, timeout_, "ListCache", &v1::AdminService::Stub::ListCache, request);
}

absl::StatusOr<v1::ListTuningResponse> Admin::ListTuning() const {
  return Call(*channel_, timeout_, "ListTuning", &v1::AdminService::Stub::ListTuning, v1::ListTuningRequest());
}

absl::StatusOr<std::shared_ptr<Link>> Admin::Identify(absl::Time deadline) const {
  return Link::Open(channel_->address(), {.name = "admin"}, deadline);
}

absl::Status Admin::SetLogLevel(const std::string& level, absl::Duration revert_after) const {
  const absl::Time deadline = absl::Now() + timeout_;
  GEMMD_ASSIGN_OR_RETURN(const std::shared_ptr<Link> link, Identify(deadline));
  grpc::ClientContext context;
  link->Prepare(context, deadline);
  v1::SetLogLevelRequest request;
  request.set_level(level);
  request.set_revert_after_seconds(static_cast<uint32_t>(absl::ToInt64Seconds(revert_after)));
  v1::SetLogLevelResponse response;
  return FromGrpc(link->stubs().admin->SetLogLevel(&context, request, &response), "SetLogLevel");
}

absl::Status Admin::Drain(absl::Duration drain_deadline) const {
  const absl::Time deadline = absl::Now() + timeout_;
  GEMMD_ASSIGN_OR_RETURN(const std::shared_ptr<Link> link, Identify(deadline));
  grpc::ClientContext context;
  link->Prepare(context, deadline);
  v1::DrainRequest request;
  request.set_deadline_seconds(static_cast<uint32_t>(absl::ToInt64Seconds(drain_deadline)));
  v1::DrainResponse response;
  return FromGrpc(link->stubs().admin->Drain(&context, request, &response), "Drain");
}

}  // namespace gemmd::client
