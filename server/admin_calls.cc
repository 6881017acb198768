#include "server/admin_calls.h"

#include "server/status.h"

namespace gemmd {

std::string OutcomeText(const absl::Status& status) {
  return status.ok() ? "OK" : std::string(status.message());
}

absl::Status SendChunks(const std::string& bytes, ChunkStream& stream) {
  constexpr size_t kChunkBytes = size_t{1} << 20;
  for (size_t at = 0; at < bytes.size(); at += kChunkBytes) {
    v1::CacheChunk chunk;
    chunk.set_data(bytes.substr(at, kChunkBytes));
    if (!stream.Push(std::move(chunk))) return absl::CancelledError("the client has gone");
  }
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* DeferCall(const ServiceContext& context, AdminWorker& worker,
                                    const absl::Status& allowed,
                                    std::function<absl::Status()> work) {
  auto* call = new DeferredCall;
  if (!allowed.ok()) {
    call->Finish(ToGrpcStatus(allowed));
    return call;
  }
  const absl::Status added =
      worker.Add([call, work = std::move(work)] { call->Finish(ToGrpcStatus(work())); });
  if (!added.ok()) call->Finish(ToGrpcStatus(context.Refuse(added)));
  return call;
}

}  // namespace gemmd
