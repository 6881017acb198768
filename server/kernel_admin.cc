#include "server/kernel_admin.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/activity.h"
#include "core/prewarm.h"
#include "server/convert_errors.h"
#include "server/convert_kernels.h"
#include "server/logging.h"
#include "server/queued_stream.h"
#include "server/status.h"

namespace gemmd {
namespace {

constexpr size_t kChunkBytes = size_t{1} << 20;
constexpr size_t kMaxBundleBytes = size_t{1} << 30;
constexpr uint32_t kDefaultListed = 1000;
constexpr uint32_t kMostListed = 5000;

using PrewarmStream = QueuedStream<v1::PrewarmProgress>;
using ChunkStream = QueuedStream<v1::CacheChunk>;

// Draining: the cache is closed, or will be before this prewarm has its turn.
absl::Status RunPrewarm(const ServiceContext& context, const PrewarmJob& job,
                        PrewarmStream& stream) {
  if (context.node->Status().draining) return Draining();
  const auto cancelled = [&stream] { return stream.cancelled(); };
  GEMMD_ASSIGN_OR_RETURN(
      const PrewarmPlan plan,
      ResolvePrewarm(job, *context.node, context.config->config.node.checkpoint_roots, cancelled));
  if (!stream.Push(ToProto(plan))) return absl::CancelledError("the client has gone");
  const absl::Status status = context.kernels->Prewarm(
      plan.layers, plan.architectures,
      [&stream](const PrewarmStep& step) { return stream.Push(ToProto(step)); }, plan.rows);
  return absl::IsCancelled(status) && !stream.cancelled() ? Draining() : status;
}

absl::Status SendBundle(const std::string& bundle, ChunkStream& stream) {
  for (size_t at = 0; at < bundle.size(); at += kChunkBytes) {
    v1::CacheChunk chunk;
    chunk.set_data(bundle.substr(at, kChunkBytes));
    if (!stream.Push(std::move(chunk))) return absl::CancelledError("the client has gone");
  }
  return absl::OkStatus();
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

}  // namespace

grpc::ServerWriteReactor<v1::PrewarmProgress>* KernelAdmin::Prewarm(
    const absl::Status& allowed, const v1::PrewarmRequest& request) {
  auto* stream = new PrewarmStream;
  if (!allowed.ok()) {
    stream->Complete(allowed);
    return stream;
  }
  if (context_.node->Status().draining) {
    stream->Complete(context_.Refuse(Draining()));
    return stream;
  }
  absl::StatusOr<PrewarmJob> job = FromProto(request);
  if (!job.ok()) {
    stream->Complete(context_.Refuse(job.status()));
    return stream;
  }
  const absl::Status added = prewarm_worker_.Add([this, stream, job = *std::move(job)] {
    const absl::Status status = RunPrewarm(context_, job, *stream);
    LogInfo("prewarm ended", {{"status", status.ok() ? "OK" : std::string(status.message())}});
    stream->Complete(status);
  });
  if (!added.ok()) stream->Complete(context_.Refuse(added));
  return stream;
}

grpc::ServerUnaryReactor* KernelAdmin::Defer(const absl::Status& allowed,
                                             std::function<absl::Status()> work) {
  auto* call = new DeferredCall;
  if (!allowed.ok()) {
    call->Finish(ToGrpcStatus(allowed));
    return call;
  }
  const absl::Status added =
      cache_worker_.Add([call, work = std::move(work)] { call->Finish(ToGrpcStatus(work())); });
  if (!added.ok()) call->Finish(ToGrpcStatus(context_.Refuse(added)));
  return call;
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
    for (const StoredKernel& kernel : result.dropped) *response->add_dropped() = ToProto(kernel);
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
      !filter->key_prefix.empty() || !filter->architecture.empty() || filter->other_compilers;
  if (!selective && !request.everything()) {
    return Defer(context_.Refuse(MissingField("filter, or everything")), nullptr);
  }
  return Defer(absl::OkStatus(), [this, filter = *filter, response]() -> absl::Status {
    GEMMD_ASSIGN_OR_RETURN(const RemovedKernels removed, context_.kernels->Purge(filter));
    response->set_entries(static_cast<uint64_t>(removed.entries));
    response->set_bytes(removed.bytes);
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
      const absl::StatusOr<std::string> bundle = context_.kernels->Export(filter);
      stream->Complete(bundle.ok() ? SendBundle(*bundle, *stream) : bundle.status());
    });
  }
  if (!status.ok()) stream->Complete(status);
  return stream;
}

// Collects the bundle, then lets the worker import it. What cannot become a bundle ends the call at once. A
// client that goes away leaves it short, and a short bundle is refused.
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
    const absl::Status status = CheckBytes();
    if (!status.ok()) return Finish(ToGrpcStatus(admin_.context_.Refuse(status)));
    StartRead(&chunk_);
  }
  void OnDone() override { delete this; }

 private:
  absl::Status CheckBytes() const {
    if (bundle_.size() > kMaxBundleBytes) {
      return OutOfRange("bundle", bundle_.size(), absl::StrCat("at most ", kMaxBundleBytes, " bytes"));
    }
    return KernelStore::CheckBundleStart(bundle_);
  }
  void Import() {
    const absl::Status added = admin_.cache_worker_.Add([this] { Finish(ToGrpcStatus(Take())); });
    if (!added.ok()) Finish(ToGrpcStatus(admin_.context_.Refuse(added)));
  }

  absl::Status Take() {
    GEMMD_ASSIGN_OR_RETURN(const ImportResult result, admin_.context_.kernels->Import(bundle_));
    response_.set_imported(static_cast<uint64_t>(result.imported));
    response_.set_present(static_cast<uint64_t>(result.present));
    response_.set_other_compiler(static_cast<uint64_t>(result.other_compiler));
    LogInfo("kernels imported", {{"imported", result.imported}, {"present", result.present}});
    return absl::OkStatus();
  }

  KernelAdmin& admin_;
  v1::ImportCacheResponse& response_;
  v1::CacheChunk chunk_;
  std::string bundle_;
};

grpc::ServerReadReactor<v1::CacheChunk>* KernelAdmin::Import(const absl::Status& allowed,
                                                             v1::ImportCacheResponse* response) {
  return new ImportStream(this, allowed, response);
}

}  // namespace gemmd
