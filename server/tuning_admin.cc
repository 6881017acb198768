#include "server/tuning_admin.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "core/activity.h"
#include "core/tune.h"
#include "kernels/base/status.h"
#include "server/convert_tuning.h"
#include "server/logging.h"
#include "server/queued_stream.h"
#include "server/status.h"

namespace gemmd {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;

using TuneStream = QueuedStream<v1::TuneProgress>;
using ChunkStream = QueuedStream<v1::CacheChunk>;

absl::Status RunTune(const ServiceContext& context, TuneJob job, TuneStream& stream) {
  const auto cancelled = [&stream] { return stream.cancelled(); };
  job.settings.deadline = absl::Now() + job.time_limit;
  GEMMD_ASSIGN_OR_RETURN(
      std::vector<TuneLayer> layers,
      ResolveTune(job, *context.node, context.config->config.node.checkpoint_roots, cancelled));
  return context.node->Tune(job.device, std::move(layers), std::move(job.settings), cancelled,
                            [&stream](const TuneStep& step) { return stream.Push(ToProto(step)); });
}

}  // namespace

grpc::ServerWriteReactor<v1::TuneProgress>* TuningAdmin::Tune(const absl::Status& allowed,
                                                              const v1::TuneRequest& request) {
  auto* stream = new TuneStream;
  if (!allowed.ok()) {
    stream->Complete(allowed);
    return stream;
  }
  if (context_.node->Status().draining) {
    stream->Complete(context_.Refuse(Draining()));
    return stream;
  }
  absl::StatusOr<TuneJob> job = FromProto(request);
  if (!job.ok()) {
    stream->Complete(context_.Refuse(job.status()));
    return stream;
  }
  const absl::Status added = tune_worker_.Add([this, stream, job = *std::move(job)] {
    const absl::Status status = RunTune(context_, job, *stream);
    LogInfo("tuning ended", {{"status", status.ok() ? "OK" : std::string(status.message())}});
    stream->Complete(status);
  });
  if (!added.ok()) stream->Complete(context_.Refuse(added));
  return stream;
}

void TuningAdmin::List(v1::ListTuningResponse* response) const {
  // Beside the layers, room for what stands around them.
  constexpr size_t kMostBytes = kMaxMessageBytes - (size_t{1} << 19);
  const TuningStore& store = *context_.tuning;
  for (const std::string& warning : store.notes().warnings) response->add_warnings(warning);
  response->set_directory(store.directory().string());
  size_t bytes = 0;
  for (const StoredTuning& stored : store.List()) {
    v1::TunedLayer layer = ToProto(stored);
    bytes += layer.ByteSizeLong() + 8;
    response->set_truncated(bytes > kMostBytes);
    if (response->truncated()) return;
    *response->add_layers() = std::move(layer);
  }
}

grpc::ServerWriteReactor<v1::CacheChunk>* TuningAdmin::Export() {
  auto* stream = new ChunkStream;
  const absl::Status added = store_worker_.Add([this, stream] {
    const std::string json = context_.tuning->Export();
    for (size_t at = 0; at < json.size(); at += kChunkBytes) {
      v1::CacheChunk chunk;
      chunk.set_data(json.substr(at, kChunkBytes));
      if (!stream->Push(std::move(chunk))) break;
    }
    stream->Complete(stream->cancelled() ? absl::CancelledError("the client has gone")
                                         : absl::OkStatus());
  });
  if (!added.ok()) stream->Complete(context_.Refuse(added));
  return stream;
}

grpc::ServerUnaryReactor* TuningAdmin::Import(const absl::Status& allowed,
                                              const v1::ImportTuningRequest& request,
                                              v1::ImportTuningResponse* response) {
  auto* call = new DeferredCall;
  absl::Status added = allowed;
  if (added.ok()) {
    added = store_worker_.Add([this, call, json = request.json(), response] {
      call->Finish(ToGrpcStatus(Take(json, *response)));
    });
    if (!added.ok()) added = context_.Refuse(added);
  }
  if (!added.ok()) call->Finish(ToGrpcStatus(added));
  return call;
}

absl::Status TuningAdmin::Take(const std::string& json, v1::ImportTuningResponse& response) const {
  GEMMD_ASSIGN_OR_RETURN(const ImportedTuning imported, context_.tuning->Import(json));
  response.set_layers(static_cast<uint32_t>(imported.entries));
  response.set_stale(static_cast<uint32_t>(imported.stale));
  LogInfo("tuning imported", {{"layers", imported.entries}, {"stale", imported.stale}});
  return absl::OkStatus();
}

}  // namespace gemmd
