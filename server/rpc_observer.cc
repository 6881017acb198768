#include "server/rpc_observer.h"

#include <google/protobuf/descriptor.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gemmd/v1/admin.pb.h"
#include "gemmd/v1/attach.pb.h"
#include "gemmd/v1/gemm.pb.h"
#include "gemmd/v1/layer.pb.h"
#include "gemmd/v1/model.pb.h"
#include "gemmd/v1/program.pb.h"
#include "gemmd/v1/region.pb.h"
#include "gemmd/v1/session.pb.h"
#include "google/rpc/error_details.pb.h"
#include "server/failure_log.h"

namespace gemmd {
namespace {

using grpc::experimental::InterceptionHookPoints;

// The reason inside the details of a failed call; empty when there is none.
std::string ReasonIn(const grpc::Status& status) {
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  if (!details.ParseFromString(status.error_details())) return "";
  for (const auto& detail : details.details()) {
    if (detail.UnpackTo(&info)) return info.reason();
  }
  return "";
}

void LogFailure(const std::string& method, grpc::StatusCode code, const grpc::Status& status,
                absl::Duration took) {
  static FailureLog log("call failed", 10);
  log.Write({method, static_cast<absl::StatusCode>(code), ReasonIn(status), status.error_message(),
             took});
}

class RpcObserver : public grpc::experimental::Interceptor {
 public:
  RpcObserver(Metrics* metrics, const grpc::ServerContextBase* context, std::string method)
      : metrics_(metrics), context_(context), method_(std::move(method)), arrived_(absl::Now()) {
    metrics_->OnRpcStarted(method_);
  }

  void Intercept(grpc::experimental::InterceptorBatchMethods* batch) override {
    if (batch->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      const grpc::Status status = batch->GetSendStatus();
      const absl::Duration took = absl::Now() - arrived_;
      // What a call that its client cancelled ends with is what the handler made of a request that broke off.
      const bool is_cancelled = !status.ok() && context_->IsCancelled();
      const auto code = is_cancelled ? grpc::StatusCode::CANCELLED : status.error_code();
      metrics_->OnRpcFinished(method_, code, took);
      if (!status.ok()) LogFailure(method_, code, status, took);
    }
    batch->Proceed();
  }

 private:
  Metrics* const metrics_;
  const grpc::ServerContextBase* const context_;
  const std::string method_;
  const absl::Time arrived_;
};

}  // namespace

RpcObserverFactory::RpcObserverFactory(Metrics* metrics) : metrics_(metrics) {
  for (const auto* file :
       {v1::HelloRequest::descriptor()->file(), v1::RegionInfo::descriptor()->file(),
        v1::LayerInfo::descriptor()->file(), v1::GemmRequest::descriptor()->file(),
        v1::RegisterModelRequest::descriptor()->file(), v1::ProgramOp::descriptor()->file(), v1::AttachLayerRequest::descriptor()->file(),
        v1::GetStatusRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        metrics_->AddRpc(
            absl::StrCat(file->service(s)->full_name(), "/", file->service(s)->method(m)->name()));
      }
    }
  }
}

grpc::experimental::Interceptor* RpcObserverFactory::CreateServerInterceptor(
    grpc::experimental::ServerRpcInfo* info) {
  std::string method = info->method();  // "/package.Service/Method"
  if (!method.empty() && method[0] == '/') method.erase(0, 1);
  return new RpcObserver(metrics_, info->server_context(), std::move(method));
}

}  // namespace gemmd
