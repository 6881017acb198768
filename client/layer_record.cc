#include "client/layer_record.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/progress_text.h"
#include "client/rpc_status.h"
#include "kernels/base/status.h"

namespace gemmd::client {
namespace {

void ReleaseOn(Link& link, uint64_t id) {
  grpc::ClientContext context;
  link.Prepare(context, absl::Now() + absl::Seconds(5));
  v1::ReleaseLayerRequest request;
  request.set_layer_id(id);
  v1::ReleaseLayerResponse response;
  // When the daemon does not answer, the end of the session gives the layer back.
  link.stubs().layers->ReleaseLayer(&context, request, &response).IgnoreError();
}

}  // namespace

v1::LayerInfo LayerRecord::info() const {
  MutexLock lock(mutex_);
  return info_;
}

std::vector<std::string> LayerRecord::notes() const {
  MutexLock lock(mutex_);
  return notes_;
}

absl::StatusOr<uint64_t> LayerRecord::IdOn(Link& link, absl::Time deadline) {
  GEMMD_RETURN_IF_ERROR(Bind(link, deadline));
  MutexLock lock(mutex_);
  return info_.layer_id();
}

absl::StatusOr<v1::RegisterLayerProgress> LayerRecord::Load(Link& link, absl::Time deadline) {
  v1::RegisterLayerRequest request = request_;
  for (const SourceRegion& source : regions_) {
    if (source.region->closed()) {
      return Error(absl::StatusCode::kFailedPrecondition, "SOURCE_GONE",
                   "the regions a layer was made from are released; it cannot be registered again");
    }
    GEMMD_ASSIGN_OR_RETURN(*source.slot(request), source.region->RefOn(link, deadline, true));
  }
  grpc::ClientContext context;
  link.Prepare(context, deadline);
  auto stream = link.stubs().layers->RegisterLayer(&context, request);
  v1::RegisterLayerProgress progress;
  v1::RegisterLayerProgress ready;
  while (stream->Read(&progress)) {
    if (progress_) progress_(progress);
    if (progress.has_layer()) ready = progress;
  }
  GEMMD_RETURN_IF_ERROR(FromGrpc(stream->Finish(), absl::StrCat("RegisterLayer of '", request_.name(), "' (",
                                                                ProgressText(progress), ")")));
  if (ready.layer().layer_id() == 0) return absl::InternalError("RegisterLayer ended without a layer");
  return ready;
}

absl::Status LayerRecord::Accept(const v1::RegisterLayerProgress& ready) {
  const v1::LayerInfo& loaded = ready.layer();
  if (!info_.digest().empty() && info_.digest() != loaded.digest()) {
    return Error(absl::StatusCode::kFailedPrecondition, "SOURCE_GONE",
                 absl::StrCat("layer '", request_.name(), "' had digest ", info_.digest(),
                              " before the daemon was restarted and has ", loaded.digest(),
                              " now: its source changed"));
  }
  info_ = loaded;
  notes_.assign(ready.notes().begin(), ready.notes().end());
  return absl::OkStatus();
}

absl::Status LayerRecord::Register(Link& link, absl::Time deadline) {
  uses_->BeginRegister(link.serial());
  const auto loaded = Load(link, deadline);
  const absl::Status accepted = loaded.ok() ? Accept(*loaded) : loaded.status();
  const uint64_t id = loaded.ok() ? loaded->layer().layer_id() : 0;
  for (uint64_t waiting : uses_->EndRegister(link.serial(), id)) ReleaseOn(link, waiting);
  serial_ = link.serial();
  if (!accepted.ok() && id != 0 && uses_->Drop(serial_, id)) ReleaseOn(link, id);
  return accepted;
}

void LayerRecord::Unregister(Link& link) {
  if (uses_->Drop(serial_, info_.layer_id())) ReleaseOn(link, info_.layer_id());
}

}  // namespace gemmd::client
