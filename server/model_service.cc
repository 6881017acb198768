#include <memory>
#include <utility>

#include "gemmd/v1/model.grpc.pb.h"
#include "kernels/base/status.h"
#include "server/admin_worker.h"
#include "server/convert_models.h"
#include "server/logging.h"
#include "server/model_stream.h"
#include "server/services.h"

namespace gemmd {
namespace {

constexpr size_t kMostPlans = 64;  // checkpoints whose headers wait to be read

class ModelService final : public v1::ModelService::CallbackService {
 public:
  explicit ModelService(const ServiceContext* context) : context_(*context) {}

  grpc::ServerWriteReactor<v1::RegisterModelProgress>* RegisterModel(
      grpc::CallbackServerContext* call, const v1::RegisterModelRequest* request) override {
    auto* stream = new ModelStream(context_.open_calls);
    const absl::Status started = Start(*call, *request, stream);
    if (!started.ok()) stream->Complete(started);
    return stream;
  }

 private:
  absl::Status Start(const grpc::CallbackServerContext& call,
                     const v1::RegisterModelRequest& request, ModelStream* stream) {
    GEMMD_ASSIGN_OR_RETURN(std::shared_ptr<Session> session, context_.SessionOf(call));
    absl::StatusOr<ModelRequest> converted = FromProto(request);
    if (!converted.ok()) return context_.Refuse(converted.status());
    return planner_.Add([this, stream, session = std::move(session),
                         model = *std::move(converted)]() mutable {
      const std::string path = model.path;
      const uint64_t session_id = context_.node->IdOf(*session);
      context_.node->RegisterModel(
          session, std::move(model),
          [this, stream, path](const ModelProgress& progress) {
            if (progress.layer.has_value()) {
              context_.note_log->Write(path, progress.module, progress.layer->notes);
            }
            return stream->Report(progress);
          },
          [this, stream, session, session_id, path](const absl::StatusOr<ModelResult>& result) {
            LogRegistration(session_id, path, result);
            if (!result.ok()) return stream->Complete(result.status());
            stream->Complete(absl::OkStatus(), [node = context_.node, session, added = result->added] {
              for (const uint64_t layer : added) node->ReleaseLayer(*session, layer).IgnoreError();
            });
          });
    });
  }

  static void LogRegistration(uint64_t session_id, const std::string& path,
                              const absl::StatusOr<ModelResult>& result) {
    if (!result.ok()) return;  // the failed call is logged with its method
    LogInfo("model registered", {{"session", session_id},
                                 {"path", path},
                                 {"layers", result->registered},
                                 {"failed", result->failed}});
  }

  const ServiceContext& context_;
  AdminWorker planner_{kMostPlans, "registrations of models"};
};

}  // namespace

std::unique_ptr<grpc::Service> MakeModelService(const ServiceContext* context) {
  return std::make_unique<ModelService>(context);
}

}  // namespace gemmd
