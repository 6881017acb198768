// Layers: where a registration's tensors come from.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/reading_notes.h"
#include "core/layer/file_identity.h"
#include "core/node.h"
#include "core/node_impl.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

// A layer lies in memory twice while it is read and converted, or packed.
constexpr uint64_t kCopiesWhileLoading = 2;

// One tensor of a TensorSource, with the memory held until it is read.
struct Piece {
  TensorSize size;
  Node::Impl::Argument from;
  Extent extent;
};

struct Pieces {
  StandardTensor tensor;  // spec and shape; the buffers are empty
  std::vector<Piece> pieces;
  uint64_t total = 0;
};

// The size is known from the spec before a byte of the region is read.
absl::Status AddPiece(const Node::Impl& impl, const Session& session, const TensorSize& size,
                      const std::optional<RawRef>& ref, Pieces& pieces) {
  if (!ref.has_value()) return size.Check(0);
  absl::StatusOr<Node::Impl::Argument> from = impl.Acquire(session, ref->region);
  if (!from.ok()) return Annotate(from.status(), size.name);
  GEMMD_ASSIGN_OR_RETURN(const Extent extent,
                         ResolveBytes(size.name, ref->byte_offset, ref->byte_size, from->extent));
  GEMMD_RETURN_IF_ERROR(size.Check(extent.size));
  pieces.total += extent.size;
  pieces.pieces.push_back({size, *std::move(from), extent});
  return absl::OkStatus();
}

// Small enough for every product of the sizes' arithmetic.
absl::Status CheckExtents(const TensorSource& source) {
  struct Field {
    const char* name;
    int64_t value;
    int64_t least;
  };
  constexpr int64_t kLargest = int64_t{1} << 40;
  for (const Field& field : {Field{"experts", source.shape.experts, 1},
                             {"n", source.shape.n, 1},
                             {"k", source.shape.k, 1},
                             {"scale_columns", source.scale_columns, 0},
                             {"scale_block_n", source.spec.scale_block_n, 0},
                             {"scale_block_k", source.spec.scale_block_k, 0}}) {
    if (field.value >= field.least && field.value <= kLargest) continue;
    return Error(
        absl::StatusCode::kInvalidArgument, "SHAPE_MISMATCH",
        absl::StrCat(field.name, " is ", field.value, ", expected ", field.least, " to 2^40"));
  }
  return absl::OkStatus();
}

// What the client sent for each tensor.
const std::optional<RawRef>& RefOf(const TensorSource& source, Buffer StandardTensor::*buffer) {
  using T = StandardTensor;
  if (buffer == &T::codes) return source.codes;
  if (buffer == &T::scales) return source.scales;
  if (buffer == &T::zero_points) return source.zero_points;
  if (buffer == &T::secondary_scales) return source.secondary_scales;
  if (buffer == &T::group_index) return source.group_index;
  if (buffer == &T::bias) return source.bias;
  if (buffer == &T::input_scale) return source.input_scale;
  if (buffer == &T::activation_zero_point) return source.activation_zero_point;
  if (buffer == &T::activation_global_scale) return source.activation_global_scale;
  return source.activation_scale;
}

absl::StatusOr<Pieces> Resolve(const Node::Impl& impl, const Session& session,
                               TensorSource source) {
  if (source.shape.experts == 0) source.shape.experts = 1;
  GEMMD_RETURN_IF_ERROR(CheckExtents(source));
  Pieces pieces;
  pieces.tensor.spec = source.spec;
  pieces.tensor.shape = source.shape;
  pieces.tensor.encoding = source.encoding;
  pieces.tensor.has_input_scale = source.input_scale.has_value();
  pieces.tensor.scale_columns =
      source.scale_columns != 0 ? source.scale_columns : source.spec.ScaleColumns(source.shape.k);
  GEMMD_ASSIGN_OR_RETURN(const std::vector<TensorSize> sizes, TensorSizes(pieces.tensor));
  for (const TensorSize& size : sizes) {
    GEMMD_RETURN_IF_ERROR(AddPiece(impl, session, size, RefOf(source, size.buffer), pieces));
  }
  return pieces;
}

// What ReadLayer shall do with weights that are not quantized; none without a target.
std::optional<QuantizeOnRead> QuantizeBy(const Node::Impl& impl,
                                         const std::optional<QuantizeTarget>& target,
                                         const ProgressFunction& progress) {
  if (!target.has_value()) return std::nullopt;
  const auto parallel = [&impl](int64_t count, const std::function<void(int64_t)>& body) {
    impl.quantizers().ParallelFor(count, body);
  };
  return QuantizeOnRead{*target, parallel, progress};
}

// Copies the pieces out of their regions, 16 MiB at a time.
absl::StatusOr<CheckpointLayer> ReadPieces(Pieces& pieces, const ProgressFunction& progress) {
  constexpr size_t kStep = size_t{16} << 20;
  CheckpointLayer layer;
  layer.format = "tensors";
  layer.tensor = pieces.tensor;
  uint64_t done = 0;
  for (const Piece& piece : pieces.pieces) {
    Buffer& buffer = layer.tensor.*piece.size.buffer;
    buffer = Buffer::Uninitialized(static_cast<size_t>(piece.extent.size));
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

absl::Status CheckTensorTarget(const TensorSource& source, const Pieces& pieces) {
  if (!source.quantize.has_value()) return absl::OkStatus();
  const absl::Status target = CheckTarget(*source.quantize);
  if (!target.ok()) return Annotate(target, "tensors.quantize");
  return Annotate(CheckUnquantized(pieces.tensor), "tensors.quantize");
}

// Of one layer in memory.
absl::StatusOr<CheckpointLayer> QuantizePieces(const QuantizeOnRead& quantize, uint64_t bytes,
                                               CheckpointLayer layer) {
  LayerQuantizer quantizer(quantize, bytes);
  GEMMD_RETURN_IF_ERROR(quantizer.Apply("tensors", bytes, layer.tensor));
  layer.quantized = quantizer.result();
  return layer;
}

absl::Status SetTensorOrigin(const Node::Impl& impl, const Session& session,
                             const TensorSource& source, LayerOrigin& origin) {
  GEMMD_ASSIGN_OR_RETURN(Pieces pieces, Resolve(impl, session, source));
  GEMMD_RETURN_IF_ERROR(CheckTensorTarget(source, pieces));
  const DeviceDescription& device = origin.device->description();
  // Refused before it is read. A device that does not know its memory says 0; what is quantized gets smaller.
  const bool known = device.memory_bytes != 0 && !source.quantize.has_value();
  if (known && pieces.total > device.memory_bytes) {
    return Error(absl::StatusCode::kResourceExhausted, "GPU_OOM",
                 absl::StrCat("the layer has ", pieces.total, " bytes, ", device.id, " has ",
                              device.memory_bytes));
  }
  origin.bytes = kCopiesWhileLoading * pieces.total;
  auto shared = std::make_shared<Pieces>(std::move(pieces));
  origin.read = [shared, &impl, target = source.quantize](
                    const ReadProgress& progress) -> absl::StatusOr<CheckpointLayer> {
    const uint64_t bytes = shared->total;
    GEMMD_ASSIGN_OR_RETURN(CheckpointLayer layer, ReadPieces(*shared, progress.reading));
    const auto quantize = QuantizeBy(impl, target, progress.quantizing);
    if (!quantize.has_value()) return layer;
    return QuantizePieces(*quantize, bytes, std::move(layer));
  };
  return absl::OkStatus();
}

absl::Status CheckNames(const CheckpointSource& source) {
  for (const auto& [field, text] : {std::pair("path", &source.path), {"module", &source.module}}) {
    if (!text->empty()) continue;
    return Error(absl::StatusCode::kInvalidArgument, "MISSING_FIELD",
                 absl::StrCat("checkpoint.", field, " is missing"));
  }
  const size_t nul = source.path.find('\0');  // the file system would stop reading there
  if (nul == std::string::npos) return absl::OkStatus();
  return Error(absl::StatusCode::kInvalidArgument, "BAD_PATH",
               absl::StrCat("checkpoint.path has a NUL at byte ", nul));
}

absl::Status SetCheckpointOrigin(const Node::Impl& impl, const CheckpointSource& source,
                                 LayerOrigin& origin) {
  GEMMD_RETURN_IF_ERROR(CheckNames(source));
  if (source.quantize.has_value()) {
    GEMMD_RETURN_IF_ERROR(Annotate(CheckTarget(*source.quantize), "checkpoint.quantize"));
  }
  GEMMD_ASSIGN_OR_RETURN(const std::filesystem::path directory,
                         ResolveCheckpointPath(source.path, impl.options.checkpoint_roots));
  GEMMD_ASSIGN_OR_RETURN(const std::string files, FileIdentity(directory));
  const ReadingOptions reading = impl.ReadingOf(source.gptq_zero_points);
  origin.identity = absl::StrCat(origin.device->description().id, "\n", source.module, "\n",
                                 source.slice.Text(), "\n",
                                 source.quantize.has_value() ? source.quantize->Text() : "", "\n",
                                 reading.Text(), "\n", files);
  origin.measure = [directory, files, module = source.module, slice = source.slice,
                    checkpoints = impl.checkpoints.get()] {
    const auto checkpoint = checkpoints->Open(directory, files);
    return checkpoint.ok() ? kCopiesWhileLoading * (*checkpoint)->BytesOf(module, slice) : 0;
  };
  origin.read = [directory, module = source.module, slice = source.slice, target = source.quantize, reading,
                 &impl](const ReadProgress& progress) -> absl::StatusOr<CheckpointLayer> {
    GEMMD_ASSIGN_OR_RETURN(const auto checkpoint, impl.checkpoints->Open(directory));
    const auto quantize = QuantizeBy(impl, target, progress.quantizing);
    GEMMD_ASSIGN_OR_RETURN(CheckpointLayer layer,
                           checkpoint->ReadLayer(module, progress.reading, slice,
                                                 quantize.has_value() ? &*quantize : nullptr, reading));
    layer.notes = ReadingNotes(*checkpoint, {{.module = module, .slice = slice}}, reading);
    return layer;
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
