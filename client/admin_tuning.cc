#include "absl/time/clock.h"
#include "client/admin.h"
#include "client/rpc_status.h"
#include "kernels/base/status.h"

namespace gemmd::client {

absl::Status Admin::Tune(const v1::TuneRequest& request,
                         const std::function<void(const v1::TuneProgress&)>& progress) const {
  GEMMD_ASSIGN_OR_RETURN(const std::shared_ptr<Link> link, Identify(absl::Now() + timeout_));
  grpc::ClientContext context;
  link->Prepare(context, absl::InfiniteFuture());
  const auto reader = link->stubs().admin->Tune(&context, request);
  v1::TuneProgress message;
  while (reader->Read(&message)) progress(message);
  return FromGrpc(reader->Finish(), "Tune");
}

absl::StatusOr<std::string> Admin::ExportTuning() const {
  const absl::Time deadline = absl::Now() + timeout_;
  GEMMD_ASSIGN_OR_RETURN(const std::shared_ptr<Link> link, Identify(deadline));
  grpc::ClientContext context;
  link->Prepare(context, deadline);
  const auto reader = link->stubs().admin->ExportTuning(&context, {});
  std::string json;
  v1::CacheChunk chunk;
  while (reader->Read(&chunk)) json += chunk.data();
  GEMMD_RETURN_IF_ERROR(FromGrpc(reader->Finish(), "ExportTuning"));
  return json;
}

absl::StatusOr<v1::ImportTuningResponse> Admin::ImportTuning(const std::string& json) const {
  const absl::Time deadline = absl::Now() + timeout_;
  GEMMD_ASSIGN_OR_RETURN(const std::shared_ptr<Link> link, Identify(deadline));
  grpc::ClientContext context;
  link->Prepare(context, deadline);
  v1::ImportTuningRequest request;
  request.set_json(json);
  v1::ImportTuningResponse response;
  GEMMD_RETURN_IF_ERROR(FromGrpc(link->stubs().admin->ImportTuning(&context, request, &response), "ImportTuning"));
  return response;
}

}  // namespace gemmd::client
