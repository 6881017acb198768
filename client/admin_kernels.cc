#include <utility>

#include "absl/time/clock.h"
#include "client/admin.h"
#include "client/rpc_status.h"
#include "kernels/base/status.h"

namespace gemmd::client {

absl::Status Admin::Prewarm(const v1::PrewarmRequest& request,
                            const std::function<void(const v1::PrewarmProgress&)>& progress) const {
  GEMMD_ASSIGN_OR_RETURN(const std::shared_ptr<Link> link, Identify(absl::Now() + timeout_));
  grpc::ClientContext context;
  link->Prepare(context, absl::InfiniteFuture());
  const auto reader = link->stubs().admin->Prewarm(&context, request);
  v1::PrewarmProgress message;
  while (reader->Read(&message)) progress(message);
  return FromGrpc(reader->Finish(), "Prewarm");
}

absl::StatusOr<v1::VerifyCacheResponse> Admin::VerifyCache() const {
  GEMMD_ASSIGN_OR_RETURN(const std::shared_ptr<Link> link, Identify(absl::Now() + timeout_));
  grpc::ClientContext context;
  link->Prepare(context, absl::InfiniteFuture());
  v1::VerifyCacheResponse response;
  GEMMD_RETURN_IF_ERROR(FromGrpc(link->stubs().admin->VerifyCache(&context, {}, &response), "VerifyCache"));
  return response;
}

absl::StatusOr<v1::PurgeCacheResponse> Admin::PurgeCache(
    const v1::PurgeCacheRequest& request) const {
  GEMMD_ASSIGN_OR_RETURN(const std::shared_ptr<Link> link, Identify(absl::Now() + timeout_));
  grpc::ClientContext context;
  link->Prepare(context, absl::Now() + timeout_);
  v1::PurgeCacheResponse response;
  GEMMD_RETURN_IF_ERROR(FromGrpc(link->stubs().admin->PurgeCache(&context, request, &response), "PurgeCache"));
  return response;
}

absl::Status Admin::ExportCache(const v1::ExportCacheRequest& request,
                                const std::function<bool(const v1::CacheChunk&)>& take) const {
  GEMMD_ASSIGN_OR_RETURN(const std::shared_ptr<Link> link, Identify(absl::Now() + timeout_));
  grpc::ClientContext context;
  link->Prepare(context, absl::InfiniteFuture());
  const auto reader = link->stubs().admin->ExportCache(&context, request);
  v1::CacheChunk chunk;
  while (reader->Read(&chunk)) {
    if (!take(chunk)) context.TryCancel();
  }
  return FromGrpc(reader->Finish(), "ExportCache");
}

absl::StatusOr<v1::ImportCacheResponse> Admin::ImportCache(
    const std::function<bool(std::string*)>& give) const {
  GEMMD_ASSIGN_OR_RETURN(const std::shared_ptr<Link> link, Identify(absl::Now() + timeout_));
  grpc::ClientContext context;
  link->Prepare(context, absl::InfiniteFuture());
  v1::ImportCacheResponse response;
  const auto writer = link->stubs().admin->ImportCache(&context, &response);
  v1::CacheChunk chunk;
  while (give(chunk.mutable_data()) && writer->Write(chunk)) {
  }
  writer->WritesDone();
  GEMMD_RETURN_IF_ERROR(FromGrpc(writer->Finish(), "ImportCache"));
  return response;
}

}  // namespace gemmd::client
