#include <utility>

#include "absl/strings/ascii.h"
#include "gemmd/v1/layer.grpc.pb.h"
#include "server/convert.h"
#include "server/convert_errors.h"
#include "server/listing.h"
#include "server/logging.h"
#include "server/register_stream.h"
#include "server/services.h"

namespace gemmd {
namespace {

constexpr int64_t kDefaultRows[] = {1, 16, 256, 4096};
constexpr int kMaxExplained = 1024;

class LayerService final : public v1::LayerService::CallbackService {
 public:
  explicit LayerService(const ServiceContext* context) : context_(*context) {}

  grpc::ServerWriteReactor<v1::RegisterLayerProgress>* RegisterLayer(
      grpc::CallbackServerContext* call, const v1::RegisterLayerRequest* request) override {
    auto* stream = new RegisterStream(context_.open_calls);
    const absl::StatusOr<std::shared_ptr<Session>> session = context_.SessionOf(*call);
    if (!session.ok()) {
      stream->Complete(session.status());
      return stream;
    }
    absl::StatusOr<LayerRequest> converted = FromProto(*request);
    if (!converted.ok()) {
      stream->Complete(context_.Refuse(converted.status()));
      return stream;
    }
    const uint64_t session_id = context_.node->IdOf(**session);
    context_.node->RegisterLayer(
        *session, *std::move(converted),
        [stream](const LayerProgress& progress) { return stream->Report(progress); },
        [this, stream, session_id, path = request->checkpoint().path(),
         module = request->checkpoint().module()](absl::StatusOr<LayerInfo> layer) {
          LogRegistration(session_id, layer);
          if (layer.ok()) context_.note_log->Write(path, module, layer->notes);
          stream->Complete(std::move(layer));
        });
    return stream;
  }

  grpc::ServerUnaryReactor* ReleaseLayer(grpc::CallbackServerContext* call,
                                         const v1::ReleaseLayerRequest* request,
                                         v1::ReleaseLayerResponse*) override {
    return Reply(call, Release(*call, request->layer_id()));
  }

  grpc::ServerUnaryReactor* GetLayer(grpc::CallbackServerContext* call,
                                     const v1::GetLayerRequest* request,
                                     v1::GetLayerResponse* response) override {
    return Reply(call, Get(*call, request->layer_id(), *response->mutable_layer()));
  }

  grpc::ServerUnaryReactor* ListLayers(grpc::CallbackServerContext* call,
                                       const v1::ListLayersRequest*,
                                       v1::ListLayersResponse* response) override {
    const auto session = context_.SessionOf(*call);
    if (session.ok()) {
      response->set_truncated(FillList(context_.node->ListLayers(**session), kMaxListedLayers,
                                       *response->mutable_layers()));
    }
    return Reply(call, session.status());
  }

  grpc::ServerUnaryReactor* ExplainLayer(grpc::CallbackServerContext* call,
                                         const v1::ExplainLayerRequest* request,
                                         v1::ExplainLayerResponse* response) override {
    return Reply(call, Explain(*call, *request, *response));
  }

 private:
  // By which rule it was quantized here: "largest"; "no" where the source's weights are as they were.
  static std::string RuleName(const LayerInfo& layer) {
    if (!layer.quantized.has_value()) return "no";
    constexpr absl::string_view kPrefix = "SCALE_RULE_";
    return absl::AsciiStrToLower(v1::ScaleRule_Name(ToProto(layer).quantized()).substr(kPrefix.size()));
  }

  static void LogRegistration(uint64_t session_id, const absl::StatusOr<LayerInfo>& layer) {
    if (!layer.ok()) return;  // the failed call is logged with its method
    LogInfo("layer registered", {{"session", session_id},
                                 {"layer", layer->layer_id},
                                 {"name", layer->name},
                                 {"device", layer->device},
                                 {"format", layer->source_format},  // of the source
                                 {"quantized", RuleName(*layer)},
                                 {"weight_bits", int{layer->spec.weight.bits}},
                                 {"bytes", layer->bytes},
                                 {"references", layer->references},
                                 {"not_finite_weights", layer->not_finite_weights},
                                 {"digest", layer->digest}});
  }

  absl::Status Release(const grpc::CallbackServerContext& call, uint64_t layer_id) const {
    GEMMD_ASSIGN_OR_RETURN(const auto session, context_.SessionOf(call));
    GEMMD_RETURN_IF_ERROR(context_.node->ReleaseLayer(*session, layer_id));
    LogInfo("layer released", {{"session", context_.node->IdOf(*session)}, {"layer", layer_id}});
    return absl::OkStatus();
  }

  absl::Status Get(const grpc::CallbackServerContext& call, uint64_t layer_id,
                   v1::LayerInfo& to) const {
    GEMMD_ASSIGN_OR_RETURN(const auto session, context_.SessionOf(call));
    GEMMD_ASSIGN_OR_RETURN(const LayerInfo layer, context_.node->GetLayer(*session, layer_id));
    to = ToProto(layer);
    return absl::OkStatus();
  }

  absl::Status Explain(const grpc::CallbackServerContext& call,
                       const v1::ExplainLayerRequest& request,
                       v1::ExplainLayerResponse& response) const {
    GEMMD_ASSIGN_OR_RETURN(const auto session, context_.SessionOf(call));
    if (request.m_size() > kMaxExplained) {
      return context_.Refuse(OutOfRange("the number of m", request.m_size(), "at most 1024"));
    }
    std::vector<int64_t> rows(request.m().begin(), request.m().end());
    if (rows.empty()) rows.assign(std::begin(kDefaultRows), std::end(kDefaultRows));
    GEMMD_ASSIGN_OR_RETURN(const std::vector<KernelExplanation> choices,
                           context_.node->Explain(*session, request.layer_id(), rows));
    for (const KernelExplanation& choice : choices) *response.add_choices() = ToProto(choice);
    return absl::OkStatus();
  }

  const ServiceContext& context_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeLayerService(const ServiceContext* context) {
  return std::make_unique<LayerService>(context);
}

}  // namespace gemmd
