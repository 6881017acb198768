#include "client/model.h"

#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/progress_text.h"
#include "client/rpc_status.h"
#include "kernels/base/status.h"

namespace gemmd::client {
namespace {

// What one run of the call said.
struct Registered {
  std::vector<v1::ModuleProgress> layers;
  std::map<std::string, v1::ModuleFailure> failures;
};

void Note(const v1::ModuleProgress& module, Registered& registered) {
  if (module.has_failure()) registered.failures[module.module()] = module.failure();
  if (module.progress().has_layer()) registered.layers.push_back(module);
}

absl::Status Call(Link& link, const v1::RegisterModelRequest& request, absl::Time deadline,
                  const ModelProgressFunction& progress, Registered& registered) {
  grpc::ClientContext context;
  link.Prepare(context, deadline);
  const auto stream = link.stubs().models->RegisterModel(&context, request);
  v1::RegisterModelProgress message;
  std::string waiting = "RegisterModel";
  bool cancelled = false;
  while (!cancelled && stream->Read(&message)) {
    if (message.has_module()) Note(message.module(), registered);
    waiting = absl::StrCat("RegisterModel (", ProgressText(message), ")");
    cancelled = progress && !progress(message);
  }
  if (!cancelled) return FromGrpc(stream->Finish(), waiting);
  context.TryCancel();
  stream->Finish();
  return Error(absl::StatusCode::kCancelled, "CANCELLED", "the registration was cancelled");
}

// What the daemon registered before it learned that the call was given up: layers of this session that nothing
// here uses.
absl::Status ReleaseUnused(Link& link, LayerUses& uses, absl::Time deadline) {
  bool more = true;
  while (more) {
    grpc::ClientContext list_context;
    link.Prepare(list_context, deadline);
    v1::ListLayersResponse list;
    GEMMD_RETURN_IF_ERROR(FromGrpc(link.stubs().layers->ListLayers(&list_context, {}, &list), "ListLayers"));
    std::set<uint64_t> held;
    for (const v1::LayerInfo& layer : list.layers()) held.insert(layer.layer_id());
    const std::set<uint64_t> unused = uses.Unused(link.serial(), held);
    for (const uint64_t id : unused) {
      grpc::ClientContext context;
      link.Prepare(context, deadline);
      v1::ReleaseLayerRequest release;
      release.set_layer_id(id);
      v1::ReleaseLayerResponse released;
      GEMMD_RETURN_IF_ERROR(
          FromGrpc(link.stubs().layers->ReleaseLayer(&context, release, &released), "ReleaseLayer"));
    }
    more = list.truncated() && !unused.empty();
  }
  return absl::OkStatus();
}

// When that fails, the end of the session gives them back.
void GiveBack(Session& session) {
  SessionState& state = *session.state();
  const absl::Time deadline = state.DefaultDeadline();
  state
      .Run(deadline, true,
           [&](Link& link) { return ReleaseUnused(link, *state.layer_uses(), deadline); })
      .IgnoreError();
}

// The daemon holds the layer already: the answer comes at once, and from now on it is this library's.
absl::StatusOr<Layer> Adopt(Session& session, const v1::RegisterModelRequest& request,
                            const v1::ModuleProgress& module) {
  v1::CheckpointSource source;
  source.set_path(request.path());
  if (request.has_quantize()) *source.mutable_quantize() = request.quantize();
  source.set_gptq_zero_points(request.gptq_zero_points());
  source.set_module(module.module());
  *source.mutable_slice() = module.slice();
  const v1::LayerInfo& layer = module.progress().layer();
  return session.RegisterCheckpoint(source, layer.device(), layer.name());
}

}  // namespace

absl::StatusOr<Model> RegisterModel(Session& session, const v1::RegisterModelRequest& request,
                                    const ModelProgressFunction& progress) {
  Registered registered;
  const absl::Time deadline = absl::Now() + session.state()->options().load_timeout;
  const absl::Status called = session.state()->Run(deadline, true, [&](Link& link) {
    registered = {};
    return Call(link, request, deadline, progress, registered);
  });
  if (absl::IsCancelled(called)) GiveBack(session);
  GEMMD_RETURN_IF_ERROR(called);
  Model model;
  model.failures = std::move(registered.failures);
  absl::Status adopted;
  for (const v1::ModuleProgress& module : registered.layers) {
    absl::StatusOr<Layer> layer = Adopt(session, request, module);
    // After a failure too: what is adopted is released with `model`.
    if (layer.ok()) model.layers[module.module()] = *std::move(layer);
    if (!layer.ok() && adopted.ok()) adopted = layer.status();
  }
  if (adopted.ok()) return model;
  model.layers.clear();
  GiveBack(session);
  return adopted;
}

}  // namespace gemmd::client
