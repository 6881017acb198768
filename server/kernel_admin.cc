#include "server/kernel_admin.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/activity.h"
#include "core/prewarm.h"
#include "server/admin_calls.h"
#include "server/convert_errors.h"
#include "server/convert_kernels.h"
#include "server/logging.h"
#include "server/prewarm_tally.h"
#include "server/status.h"

namespace gemmd {
namespace {

constexpr uint32_t kDefaultListed = 1000;
constexpr uint32_t kMostListed = 5000;

using PrewarmStream = QueuedStream<v1::PrewarmProgress>;

// Whether some did not stay; the log tells why.
bool LogOverflow(const CacheOverflow& overflow) {
  if (overflow.removed > 0) {
    LogWarn("kernels were removed from the cache just after they came", {{"removed", overflow.removed}});
  }
  if (overflow.entries == 0) return overflow.removed > 0;
  LogWarn("kernels did not stay in the cache: cache_max_bytes is too small for them",
          {{"evicted", overflow.entries},
           {"needed_bytes", overflow.needed_bytes},
           {"cache_max_bytes", overflow.limit_bytes}});
  return true;
}

using NamedKernels = google::protobuf::RepeatedPtrField<v1::CachedKernel>;

// Names them in an answer; the log gets the number and the first one's problem.
void Tell(const char* what, const std::vector<StoredKernel>& kernels, NamedKernels& named) {
  for (const StoredKernel& kernel : kernels) *named.Add() = ToProto(kernel);
  if (kernels.empty()) return;
  LogWarn(what, {{"entries", kernels.size()}, {"first", kernels[0].problem}});
}

// Draining: the cache is closed, or will be before this prewarm has its turn.
absl::Status RunPrewarm(const ServiceContext& context, const PrewarmJob& job, PrewarmStream& stream,
                        PrewarmTally& tally) {
  if (context.node->Status().draining) return Draining();
  const auto cancelled = [&stream] { return stream.cancelled(); };
  GEMMD_ASSIGN_OR_RETURN(
      const PrewarmPlan plan,
      ResolvePrewarm(job, *context.node, context.config->config.node.checkpoint_roots, cancelled));
  if (!stream.Push(ToProto(plan))) return absl::CancelledError("the client has gone");
  CacheOverflow overflow;
  const absl::Status status = context.kernels->Prewarm(
      plan.layers, plan.architectures,
      [&stream, &tally](const PrewarmStep& step) {
        tally.Count(step);
        return stream.Push(ToProto(step));
      },
      plan.rows, cancelled, {context.tuning, plan.gpus}, &overflow);
  if (LogOverflow(overflow)) {
    v1::PrewarmProgress last;
    *last.mutable_overflow() = ToProto(overflow);
    (void)stream.Push(std::move(last));
  }
  return absl::IsCancelled(status) && !stream.cancelled() ? Draining() : status;
}

absl::Status FillList(const ServiceContext& context, const KernelFilter& filter, uint32_t limit,
                      v1::ListCacheResponse& response) {
  GEMMD_ASSIGN_OR_RETURN(const std::vector<StoredKernel> kernels, context.kernels->List(filter));
  uint64_t bytes = 0;
  for (const StoredKernel& kernel : kernels) {
    bytes += kernel.bytes;
    if (static_cast<uint32_t>(response.kernels_size()) < limit) {
      *response.add_kernels() = ToProto(kernel);
    }
  }
  response.set_matching(kernels.size());
  response.set_matching_bytes(bytes);
  response.set_directory(context.config->config.cache_dir.string());
  response.set_warning(context.kernels->stats().warning);
  return absl::OkStatus();
}

absl::Status SendBundle(const ServiceContext& context, const KernelFilter& filter, ChunkStream& stream) {
  GEMMD_ASSIGN_OR_RETURN(const ExportedKernels exported, context.kernels->Export(filter));
  v1::CacheChunk first;
  first.set_kernels(static_cast<uint64_t>(exported.entries));
  Tell("kernel cache: unusable entries not exported", exported.skipped, *first.mutable_skipped());
  if (!stream.Push(std::move(first))) return absl::CancelledError("the client has gone");
  return SendChunks(exported.bundle, stream);
}

v1::PrewarmProgress WaitsBehind(size_t ahead) {
  v1::PrewarmProgress progress;
  progress.set_waits_behind(static_cast<uint32_t>(ahead));
  return progress;
}

}  // namespace

grpc::ServerWriteReactor<v1::PrewarmProgress>* KernelAdmin::Prewarm(
    const absl::Status& allowed, const v1::PrewarmRequest& request) {
  const auto run = [this](const PrewarmJob& job, PrewarmStream& stream) {
    PrewarmTally tally;
    const absl::Status status = RunPrewarm(context_, job, stream, tally);
    tally.Log(status);
    return status;
  };
  return StartJob<v1::PrewarmProgress>(context_, prewarm_worker_, allowed, FromProto(request), run, &WaitsBehind);
}

grpc::ServerUnaryReactor* KernelAdmin::Defer(const absl::Status& allowed,
                                             std::function<absl::Status()> work) {
  return DeferCall(context_, cache_worker_, allowed, std::move(work));
}

grpc::ServerUnaryReactor* KernelAdmin::List(const v1::ListCacheRequest& request,
                                            v1::ListCacheResponse* response) {
  const absl::StatusOr<KernelFilter> filter = FromProto(request.filter());
  if (!filter.ok()) return Defer(context_.Refuse(filter.status()), nullptr);
  const uint32_t limit =
      std::min(request.limit() == 0 ? kDefaultListed : request.limit(), kMostListed);
  return Defer(absl::OkStatus(), [this, filter = *filter, limit, response] {
    return FillList(context_, filter, limit, *response);
  });
}

grpc::ServerUnaryReactor* KernelAdmin::Verify(const absl::Status& allowed,
                                              v1::VerifyCacheResponse* response) {
  return Defer(allowed, [this, response]() -> absl::Status {
    GEMMD_ASSIGN_OR_RETURN(const VerifyResult result, context_.kernels->Verify());
    response->set_checked(static_cast<uint64_t>(result.checked));
    Tell("kernel cache: unusable entries dropped", result.dropped, *response->mutable_dropped());
    Tell("kernel cache: unreadable entries", result.unreadable, *response->mutable_unreadable());
    Tell("kernel cache: unusable entries stay", result.kept, *response->mutable_kept());
    return absl::OkStatus();
  });
}

grpc::ServerUnaryReactor* KernelAdmin::Purge(const absl::Status& allowed,
                                             const v1::PurgeCacheRequest& request,
                                             v1::PurgeCacheResponse* response) {
  if (!allowed.ok()) return Defer(allowed, nullptr);
  const absl::StatusOr<KernelFilter> filter = FromProto(request.filter());
  if (!filter.ok()) return Defer(context_.Refuse(filter.status()), nullptr);
  const bool selective =
      !filter->key_prefix.empty() || !filter->architectures.empty() || filter->other_compilers;
  if (!selective && !request.everything()) {
    return Defer(context_.Refuse(MissingField("filter, or everything")), nullptr);
  }
  return Defer(absl::OkStatus(), [this, filter = *filter, response]() -> absl::Status {
    GEMMD_ASSIGN_OR_RETURN(const RemovedKernels removed, context_.kernels->Purge(filter));
    response->set_entries(static_cast<uint64_t>(removed.entries));
    response->set_bytes(removed.bytes);
    Tell("kernel cache: entries could not be removed", removed.kept, *response->mutable_kept());
    LogInfo("kernel cache purged", {{"entries", removed.entries}, {"bytes", removed.bytes}});
    return absl::OkStatus();
  });
}

grpc::ServerWriteReactor<v1::CacheChunk>* KernelAdmin::Export(
    const absl::Status& allowed, const v1::ExportCacheRequest& request) {
  auto* stream = new ChunkStream;
  absl::Status status = allowed;
  const absl::StatusOr<KernelFilter> filter = FromProto(request.filter());
  if (status.ok() && !filter.ok()) status = context_.Refuse(filter.status());
  if (status.ok()) {
    status = cache_worker_.Add([this, stream, filter = *filter] {
      stream->Complete(SendBundle(context_, filter, *stream));
    });
  }
  if (!status.ok()) stream->Complete(status);
  return stream;
}

// Collects the bundle, then lets the worker import it. What cannot become a bundle ends the call at once. A
// client that goes away leaves it short: it is not imported.
class KernelAdmin::ImportStream : public grpc::ServerReadReactor<v1::CacheChunk> {
 public:
  ImportStream(KernelAdmin* admin, const absl::Status& allowed, v1::ImportCacheResponse* response)
      : admin_(*admin), response_(*response) {
    if (allowed.ok()) {
      StartRead(&chunk_);
    } else {
      Finish(ToGrpcStatus(allowed));
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Import();
    bundle_ += chunk_.data();
    const absl::Status status = admin_.context_.kernels->CheckBundleStart(bundle_);
    if (!status.ok()) return Finish(ToGrpcStatus(admin_.context_.Refuse(status)));
    StartRead(&chunk_);
  }
  void OnCancel() override { has_gone_ = true; }
  void OnDone() override { delete this; }

 private:
  void Import() {
    const absl::Status added = admin_.cache_worker_.Add([this] { Finish(ToGrpcStatus(Take())); });
    if (!added.ok()) Finish(ToGrpcStatus(admin_.context_.Refuse(added)));
  }

  absl::Status Take() {
    if (has_gone_) return absl::CancelledError("the client has gone");
    GEMMD_ASSIGN_OR_RETURN(const ImportResult result, admin_.context_.kernels->Import(bundle_));
    response_.set_imported(static_cast<uint64_t>(result.imported));
    response_.set_present(static_cast<uint64_t>(result.present));
    response_.set_other_compiler(static_cast<uint64_t>(result.other_compiler));
    if (LogOverflow(result.overflow)) *response_.mutable_overflow() = ToProto(result.overflow);
    LogInfo("kernels imported", {{"imported", result.imported}, {"present", result.present}});
    return absl::OkStatus();
  }

  KernelAdmin& admin_;
  v1::ImportCacheResponse& response_;
  v1::CacheChunk chunk_;
  std::string bundle_;
  std::atomic<bool> has_gone_{false};
};

grpc::ServerReadReactor<v1::CacheChunk>* KernelAdmin::Import(const absl::Status& allowed,
                                                             v1::ImportCacheResponse* response) {
  return new ImportStream(this, allowed, response);
}

}  // namespace gemmd
