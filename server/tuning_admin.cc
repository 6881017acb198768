#include "server/tuning_admin.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "core/activity.h"
#include "core/tune.h"
#include "kernels/base/status.h"
#include "server/admin_calls.h"
#include "server/convert_tuning.h"
#include "server/logging.h"
#include "server/status.h"

namespace gemmd {
namespace {

using TuneStream = QueuedStream<v1::TuneProgress>;

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
  return StartJob<v1::TuneProgress>(context_, tune_worker_, allowed, FromProto(request),
                                    [this](const TuneJob& job, TuneStream& stream) {
                                      const absl::Status status = RunTune(context_, job, stream);
                                      LogInfo("tuning ended", {{"status", OutcomeText(status)}});
                                      return status;
                                    });
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
    stream->Complete(SendChunks(context_.tuning->Export(), *stream));
  });
  if (!added.ok()) stream->Complete(context_.Refuse(added));
  return stream;
}

grpc::ServerUnaryReactor* TuningAdmin::Import(const absl::Status& allowed,
                                              const v1::ImportTuningRequest& request,
                                              v1::ImportTuningResponse* response) {
  return DeferCall(context_, store_worker_, allowed, [this, json = request.json(), response] {
    return Take(json, *response);
  });
}

absl::Status TuningAdmin::Take(const std::string& json, v1::ImportTuningResponse& response) const {
  GEMMD_ASSIGN_OR_RETURN(const ImportedTuning imported, context_.tuning->Import(json));
  response.set_layers(static_cast<uint32_t>(imported.entries));
  response.set_stale(static_cast<uint32_t>(imported.stale));
  LogInfo("tuning imported", {{"layers", imported.entries}, {"stale", imported.stale}});
  return absl::OkStatus();
}

}  // namespace gemmd
