#include <utility>

#include "gemmd/v1/gemm.grpc.pb.h"
#include "server/convert.h"
#include "server/services.h"
#include "server/status.h"
#include "server/submit_stream.h"

namespace gemmd {
namespace {

// A call that the node answers; a drain waits for it.
class RequestCall : public DeferredCall {
 public:
  explicit RequestCall(OpenCalls* calls) : lease_(calls) {}

 private:
  const OpenCalls::Lease lease_;
};

class GemmService final : public v1::GemmService::CallbackService {
 public:
  explicit GemmService(const ServiceContext* context) : context_(*context) {}

  grpc::ServerUnaryReactor* Gemm(grpc::CallbackServerContext* call, const v1::GemmRequest* request,
                                 v1::GemmResponse* response) override {
    auto* answer = new RequestCall(context_.open_calls);
    const absl::StatusOr<std::shared_ptr<Session>> session = context_.SessionOf(*call);
    if (!session.ok()) return Failed(answer, session.status());
    const absl::StatusOr<GemmRequest> converted = FromProto(*request);
    if (!converted.ok()) return Failed(answer, context_.Refuse(converted.status()));
    context_.node->SubmitGemm(*session, *converted, DeadlineOf(*call), IsSet(answer->cancelled()),
                              [answer, response](absl::StatusOr<GemmResult> result) {
                                if (result.ok()) *response = ToProto(*result);
                                answer->Finish(ToGrpcStatus(result.status()));
                              });
    return answer;
  }

  grpc::ServerUnaryReactor* Moe(grpc::CallbackServerContext* call, const v1::MoeRequest* request,
                                v1::MoeResponse* response) override {
    auto* answer = new RequestCall(context_.open_calls);
    const absl::StatusOr<std::shared_ptr<Session>> session = context_.SessionOf(*call);
    if (!session.ok()) return Failed(answer, session.status());
    const absl::StatusOr<MoeRequest> converted = FromProto(*request);
    if (!converted.ok()) return Failed(answer, context_.Refuse(converted.status()));
    context_.node->SubmitMoe(*session, *converted, DeadlineOf(*call), IsSet(answer->cancelled()),
                             [answer, response](absl::StatusOr<MoeResult> result) {
                               if (result.ok()) *response = ToProto(*result);
                               answer->Finish(ToGrpcStatus(result.status()));
                             });
    return answer;
  }

  grpc::ServerBidiReactor<v1::SubmitRequest, v1::SubmitResponse>* Submit(
      grpc::CallbackServerContext* call) override {
    return NewSubmitStream(&context_, context_.SessionOf(*call), DeadlineOf(*call));
  }

 private:
  static grpc::ServerUnaryReactor* Failed(DeferredCall* answer, const absl::Status& status) {
    answer->Finish(ToGrpcStatus(status));
    return answer;
  }

  const ServiceContext& context_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeGemmService(const ServiceContext* context) {
  return std::make_unique<GemmService>(context);
}

}  // namespace gemmd
