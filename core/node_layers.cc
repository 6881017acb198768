// Layers: where a registration's tensors come from.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/layer/file_identity.h"
#include "core/node.h"
#include "core/node_impl.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

// One tensor of a TensorSource, with the memory held until it is read.
struct Piece {
  Buffer StandardTensor::*buffer = nullptr;
  Node::Impl::Argument from;
  Extent extent;
};

struct Pieces {
  StandardTensor tensor;  // spec and shape; the buffers are empty
  std::vector<Piece> pieces;
  uint64_t total = 0;
};

absl::Status AddPiece(const Node::Impl& impl, const Session& session, absl::string_view field,
                      const std::optional<RawRef>& ref, Buffer StandardTensor::*buffer,
                      Pieces& pieces) {
  if (!ref.has_value()) return absl::OkStatus();
  absl::StatusOr<Node::Impl::Argument> from = impl.Acquire(session, ref->region);
  if (!from.ok()) return Annotate(from.status(), field);
  GEMMD_ASSIGN_OR_RETURN(const Extent extent,
                         ResolveBytes(field, ref->byte_offset, ref->byte_size, from->extent));
  pieces.total += extent.size;
  pieces.pieces.push_back({buffer, *std::move(from), extent});
  return absl::OkStatus();
}

absl::Status CheckExtents(const TensorSource& source) {
  constexpr int64_t kLargest = int64_t{1} << 40;
  const auto bad = [](int64_t extent, int64_t least) {
    return extent < least || extent > kLargest;
  };
  if (!bad(source.shape.experts, 1) && !bad(source.shape.n, 1) && !bad(source.shape.k, 1) &&
      !bad(source.spec.scale_block_n, 0) && !bad(source.spec.scale_block_k, 0)) {
    return absl::OkStatus();
  }
  return Error(absl::StatusCode::kInvalidArgument, "SHAPE_MISMATCH",
               absl::StrCat("experts ", source.shape.experts, ", n ", source.shape.n, ", k ",
                            source.shape.k, ", scale_block_n ", source.spec.scale_block_n,
                            ", scale_block_k ", source.spec.scale_block_k,
                            ": each must be positive (blocks may be 0) and at most 2^40"));
}

absl::StatusOr<Pieces> Resolve(const Node::Impl& impl, const Session& session,
                               TensorSource source) {
  if (source.shape.experts == 0) source.shape.experts = 1;
  GEMMD_RETURN_IF_ERROR(CheckExtents(source));
  Pieces pieces;
  pieces.tensor.spec = source.spec;
  pieces.tensor.shape = source.shape;
  pieces.tensor.scale_columns =
      source.scale_columns != 0 ? source.scale_columns : source.spec.ScaleColumns(source.shape.k);
  const auto add = [&](absl::string_view field, const std::optional<RawRef>& ref,
                       Buffer StandardTensor::*buffer) {
    return AddPiece(impl, session, field, ref, buffer, pieces);
  };
  using T = StandardTensor;
  GEMMD_RETURN_IF_ERROR(add("codes", source.codes, &T::codes));
  GEMMD_RETURN_IF_ERROR(add("scales", source.scales, &T::scales));
  GEMMD_RETURN_IF_ERROR(add("zero_points", source.zero_points, &T::zero_points));
  GEMMD_RETURN_IF_ERROR(add("secondary_scales", source.secondary_scales, &T::secondary_scales));
  GEMMD_RETURN_IF_ERROR(add("group_index", source.group_index, &T::group_index));
  GEMMD_RETURN_IF_ERROR(add("bias", source.bias, &T::bias));
  GEMMD_RETURN_IF_ERROR(add("activation_scale", source.activation_scale, &T::activation_scale));
  return pieces;
}

// Copies the pieces out of their regions, 16 MiB at a time.
absl::StatusOr<CheckpointLayer> ReadPieces(Pieces& pieces, const ProgressFunction& progress) {
  constexpr size_t kStep = size_t{16} << 20;
  CheckpointLayer layer;
  layer.format = "tensors";
  layer.tensor = pieces.tensor;
  uint64_t done = 0;
  for (const Piece& piece : pieces.pieces) {
    Buffer& buffer = layer.tensor.*piece.buffer;
    buffer.resize(static_cast<size_t>(piece.extent.size));
    for (size_t at = 0; at < buffer.size(); at += kStep) {
      const size_t count = std::min(kStep, buffer.size() - at);
      GEMMD_RETURN_IF_ERROR(piece.from.device->CopyOut(piece.extent.address + at,
                                                       absl::MakeSpan(buffer.data() + at, count)));
      done += count;
      if (progress && !progress(done, pieces.total)) {
        return Error(absl::StatusCode::kCancelled, "CANCELLED", "the registration was cancelled");
      }
    }
  }
  pieces.pieces.clear();  // the regions are free to go
  return layer;
}

absl::Status SetTensorOrigin(const Node::Impl& impl, const Session& session,
                             const TensorSource& source, LayerOrigin& origin) {
  GEMMD_ASSIGN_OR_RETURN(Pieces pieces, Resolve(impl, session, source));
  auto shared = std::make_shared<Pieces>(std::move(pieces));
  origin.read = [shared](const ProgressFunction& progress) {
    return ReadPieces(*shared, progress);
  };
  return absl::OkStatus();
}

absl::Status SetCheckpointOrigin(const Node::Impl& impl, const CheckpointSource& source,
                                 LayerOrigin& origin) {
  GEMMD_ASSIGN_OR_RETURN(const std::filesystem::path directory,
                         ResolveCheckpointPath(source.path, impl.options.checkpoint_roots));
  GEMMD_ASSIGN_OR_RETURN(const std::string files, FileIdentity(directory));
  origin.identity = absl::StrCat(origin.device->description().id, "\n", source.module, "\n", files);
  origin.read = [directory, module = source.module,
                 roots = impl.options.checkpoint_roots](const ProgressFunction& progress) {
    return ReadLayer(directory, module, progress, roots);
  };
  return absl::OkStatus();
}

absl::StatusOr<LayerOrigin> OriginOf(const Node::Impl& impl, const Session& session,
                                     const LayerRequest& request) {
  GEMMD_ASSIGN_OR_RETURN(const Node::Impl::Place* const place, impl.FindPlace(request.device));
  GEMMD_RETURN_IF_ERROR(place->device->health());
  LayerOrigin origin;
  origin.device = place->device.get();
  origin.guard = [reaper = place->reaper.get()](std::shared_ptr<DeviceLayer> layer) {
    return reaper->Guard(std::move(layer));
  };
  const auto* tensors = std::get_if<TensorSource>(&request.source);
  GEMMD_RETURN_IF_ERROR(
      tensors != nullptr
          ? SetTensorOrigin(impl, session, *tensors, origin)
          : SetCheckpointOrigin(impl, std::get<CheckpointSource>(request.source), origin));
  return origin;
}

}  // namespace

void Node::RegisterLayer(const std::shared_ptr<Session>& session, LayerRequest request,
                         std::function<bool(const LayerProgress&)> progress,
                         std::function<void(absl::StatusOr<LayerInfo>)> done) {
  if (absl::Status begun = impl_->activity.Begin(); !begun.ok()) return done(begun);
  LayerRegistration registration;
  registration.session_id = session->id();
  registration.name = std::move(request.name);
  registration.progress = std::move(progress);
  registration.done = [impl = impl_.get(), done = std::move(done)](absl::StatusOr<LayerInfo> info) {
    done(std::move(info));
    impl->activity.End();
  };
  absl::StatusOr<LayerOrigin> origin = OriginOf(*impl_, *session, request);
  if (!origin.ok()) return registration.done(origin.status());
  impl_->layers->Register(std::move(registration), *std::move(origin));
}

absl::Status Node::ReleaseLayer(Session& session, uint64_t layer_id) {
  return impl_->layers->Release(session.id(), layer_id);
}

absl::StatusOr<LayerInfo> Node::GetLayer(const Session& session, uint64_t layer_id) const {
  return impl_->layers->Info(session.id(), layer_id);
}

std::vector<LayerInfo> Node::ListLayers(const Session& session) const {
  return impl_->layers->List(session.id());
}

std::vector<LayerInfo> Node::ListAllLayers() const { return impl_->layers->ListAll(); }

absl::StatusOr<std::vector<KernelExplanation>> Node::Explain(const Session& session,
                                                             uint64_t layer_id,
                                                             const std::vector<int64_t>& m) {
  GEMMD_ASSIGN_OR_RETURN(const LayerRegistry::Use use, impl_->layers->Find(session.id(), layer_id));
  const std::vector<int64_t> rows = m.empty() ? std::vector<int64_t>{1, 16, 256, 4096} : m;
  std::vector<KernelExplanation> explanations;
  for (const int64_t count : rows) {
    if (count < 0) {
      return Error(absl::StatusCode::kInvalidArgument, "SHAPE_MISMATCH",
                   absl::StrCat("m is ", count, ", expected 0 or more"));
    }
    GEMMD_ASSIGN_OR_RETURN(KernelExplanation explanation, use.device->Explain(*use.layer, count));
    explanations.push_back(std::move(explanation));
  }
  return explanations;
}

}  // namespace gemmd
