#include "absl/strings/str_cat.h"
#include "gemmd/v1/region.grpc.pb.h"
#include "server/convert.h"
#include "server/convert_errors.h"
#include "server/listing.h"
#include "server/services.h"

namespace gemmd {
namespace {

class RegionService final : public v1::RegionService::CallbackService {
 public:
  explicit RegionService(const ServiceContext* context) : context_(*context) {}

  grpc::ServerUnaryReactor* RegisterRegion(grpc::CallbackServerContext* call,
                                           const v1::RegisterRegionRequest* request,
                                           v1::RegisterRegionResponse* response) override {
    return Reply(call, Register(*call, *request, *response));
  }

  grpc::ServerUnaryReactor* UnregisterRegion(grpc::CallbackServerContext* call,
                                             const v1::UnregisterRegionRequest* request,
                                             v1::UnregisterRegionResponse*) override {
    return Reply(call, Unregister(*call, *request));
  }

  grpc::ServerUnaryReactor* ListRegions(grpc::CallbackServerContext* call,
                                        const v1::ListRegionsRequest*,
                                        v1::ListRegionsResponse* response) override {
    const auto session = context_.SessionOf(*call);
    if (session.ok()) {
      response->set_truncated(FillList(context_.node->ListRegions(**session), kMaxListedRegions,
                                       *response->mutable_regions()));
    }
    return Reply(call, session.status());
  }

  grpc::ServerUnaryReactor* WriteRegion(grpc::CallbackServerContext* call,
                                        const v1::WriteRegionRequest* request,
                                        v1::WriteRegionResponse*) override {
    return Reply(call, Write(*call, *request));
  }

  grpc::ServerUnaryReactor* ReadRegion(grpc::CallbackServerContext* call,
                                       const v1::ReadRegionRequest* request,
                                       v1::ReadRegionResponse* response) override {
    return Reply(call, Read(*call, *request, *response));
  }

 private:
  absl::Status Register(const grpc::CallbackServerContext& call,
                        const v1::RegisterRegionRequest& request,
                        v1::RegisterRegionResponse& response) const {
    GEMMD_ASSIGN_OR_RETURN(const auto session, context_.SessionOf(call));
    const absl::StatusOr<RegionRequest> converted = FromProto(request);
    if (!converted.ok()) return context_.Refuse(converted.status());
    GEMMD_ASSIGN_OR_RETURN(const RegionInfo region,
                           context_.node->RegisterRegion(*session, *converted));
    *response.mutable_region() = ToProto(region.ref);
    response.set_size(region.size);
    return absl::OkStatus();
  }

  absl::Status Unregister(const grpc::CallbackServerContext& call,
                          const v1::UnregisterRegionRequest& request) const {
    GEMMD_ASSIGN_OR_RETURN(const auto session, context_.SessionOf(call));
    if (!request.has_region()) return context_.Refuse(MissingField("region"));
    return context_.node->UnregisterRegion(*session, FromProto(request.region()));
  }

  absl::Status Write(const grpc::CallbackServerContext& call,
                     const v1::WriteRegionRequest& request) const {
    GEMMD_ASSIGN_OR_RETURN(const auto session, context_.SessionOf(call));
    return context_.node->WriteRegion(*session, FromProto(request.region()), request.offset(),
                                      request.data());
  }

  absl::Status Read(const grpc::CallbackServerContext& call, const v1::ReadRegionRequest& request,
                    v1::ReadRegionResponse& response) const {
    GEMMD_ASSIGN_OR_RETURN(const auto session, context_.SessionOf(call));
    if (request.size() > kMaxPayloadBytes) {
      return context_.Refuse(OutOfRange(
          "size", request.size(), absl::StrCat("at most ", kMaxPayloadBytes, " bytes a call")));
    }
    GEMMD_ASSIGN_OR_RETURN(*response.mutable_data(),
                           context_.node->ReadRegion(*session, FromProto(request.region()),
                                                     request.offset(), request.size()));
    return absl::OkStatus();
  }

  const ServiceContext& context_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeRegionService(const ServiceContext* context) {
  return std::make_unique<RegionService>(context);
}

}  // namespace gemmd
