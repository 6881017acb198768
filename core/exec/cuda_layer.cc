#include "core/exec/cuda_layer.h"

#include <algorithm>
#include <utility>

#include "kernels/base/status.h"
#include "kernels/contract/element_format.h"

namespace gemmd {
namespace {

constexpr uint64_t kPartAlignment = 256;
constexpr int64_t kSliceBytes = int64_t{16} << 20;  // of codes that are packed at a time

// Whether every expert has the factors of the first.
bool SharesInputScale(const StandardTensor& tensor) {
  const auto row = static_cast<size_t>(tensor.shape.k) * sizeof(float);
  const absl::Span<const std::byte> all = tensor.input_scale;
  for (size_t at = row; at < all.size(); at += row) {
    if (all.subspan(at, row) != all.subspan(0, row)) return false;
  }
  return true;
}

// One row of factors for each expert, or for all.
absl::Span<const std::byte> InputScaleToUpload(const StandardTensor& tensor) {
  const absl::Span<const std::byte> all = tensor.input_scale;
  if (!SharesInputScale(tensor)) return all;
  return all.subspan(0, static_cast<size_t>(tensor.shape.k) * sizeof(float));
}

// Where each tensor lies in the layer's allocation.
class Parts {
 public:
  struct Part {
    absl::Span<const std::byte> bytes;  // to be uploaded
    uint64_t offset;
  };

  // `units_bytes`: of packed weights, which are made on the GPU and hold the codes; 0: they stay as they are.
  Parts(const StandardTensor& tensor, const PackedScales& packed, uint64_t units_bytes)
      : parts_{Place(units_bytes == 0 ? tensor.codes : absl::Span<const std::byte>()),
               Place(tensor.scales),
               Place(tensor.zero_points),
               Place(tensor.secondary_scales),
               Place(tensor.group_index),
               Place(tensor.bias),
               Place(tensor.activation_scale),
               Place(packed.channel_factor),
               Place(InputScaleToUpload(tensor))},
        units_offset_(end_),
        units_bytes_(units_bytes) {}

  uint64_t bytes() const { return units_offset_ + units_bytes_; }
  const auto& all() const { return parts_; }

  LayerAddresses AddressesFrom(uintptr_t base) const {
    return {AddressOf(0, base), AddressOf(1, base), AddressOf(2, base),
            AddressOf(3, base), AddressOf(4, base), AddressOf(5, base),
            units_bytes_ == 0 ? 0 : base + units_offset_, AddressOf(7, base)};
  }
  QuantizeTensors TensorsOfXFrom(uintptr_t base) const {
    return {reinterpret_cast<const float*>(AddressOf(6, base)),
            reinterpret_cast<const float*>(AddressOf(8, base))};
  }

 private:
  Part Place(absl::Span<const std::byte> bytes) {
    const Part part{bytes, end_};
    end_ += (bytes.size() + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
    return part;
  }
  uintptr_t AddressOf(size_t part, uintptr_t base) const {
    return parts_[part].bytes.empty() ? 0 : base + parts_[part].offset;
  }

  uint64_t end_ = 0;  // before parts_: Place advances it
  Part parts_[9];
  const uint64_t units_offset_;
  const uint64_t units_bytes_;
};

// Units of codes as they are, some at a time, and what the host packed of them.
class Slices {
 public:
  Slices(const StandardTensor& tensor, const PackedScales& packed, const PackArgs& args)
      : codes_(tensor.codes),
        scales_(packed.units),
        code_bytes_(PackedLayout::kUnitRows * args.row_words * 4),
        scale_bytes_(args.ScaleBytes(1)),
        units_(PackedLayout::Units(args.n)),
        step_(std::clamp<int64_t>(kSliceBytes / code_bytes_, 1, units_)) {}

  int64_t units() const { return units_; }
  int64_t step() const { return step_; }
  // Of memory for one slice: codes first, then scales.
  uint64_t bytes() const { return scale_offset() + static_cast<uint64_t>(step_ * scale_bytes_); }
  uint64_t scale_offset() const {
    const auto bytes = static_cast<uint64_t>(step_ * code_bytes_);
    return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
  }
  // `step` units from `first` on, or what is left.
  absl::Span<const std::byte> CodesAt(int64_t first) const { return At(codes_, code_bytes_, first); }
  absl::Span<const std::byte> ScalesAt(int64_t first) const { return At(scales_, scale_bytes_, first); }

 private:
  absl::Span<const std::byte> At(absl::Span<const std::byte> bytes, int64_t unit_bytes,
                                 int64_t first) const {
    return bytes.subspan(static_cast<size_t>(first * unit_bytes),
                         static_cast<size_t>(step_ * unit_bytes));
  }

  const absl::Span<const std::byte> codes_;
  const absl::Span<const std::byte> scales_;
  const int64_t code_bytes_;  // of a unit
  const int64_t scale_bytes_;
  const int64_t units_;
  const int64_t step_;
};

// The copy of a slice waits until the one before is packed: they share the stream.
absl::Status PackUnits(const CudaGpu& gpu, const StandardTensor& tensor, const PackedScales& packed,
                       CUkernel kernel, uintptr_t units, Upload& upload) {
  PackArgs args = PackArgsOf(tensor.spec, tensor.shape);
  const Slices slices(tensor, packed, args);
  GEMMD_ASSIGN_OR_RETURN(const uintptr_t codes, upload.Scratch(slices.bytes()));
  const uintptr_t scales = codes + slices.scale_offset();
  args.codes = reinterpret_cast<const uint32_t*>(codes);
  args.scales = reinterpret_cast<const void*>(scales);
  args.units = reinterpret_cast<void*>(units);
  for (int64_t first = 0; first < slices.units(); first += slices.step()) {
    GEMMD_RETURN_IF_ERROR(upload.Copy(codes, slices.CodesAt(first)));
    GEMMD_RETURN_IF_ERROR(upload.Copy(scales, slices.ScalesAt(first)));
    args.first_unit = first;
    const int64_t count = std::min(slices.step(), slices.units() - first);
    GEMMD_RETURN_IF_ERROR(LaunchPack(gpu.driver, kernel, args, count, upload.stream()));
  }
  return absl::OkStatus();
}

absl::Status Fill(CudaGpu& gpu, const StandardTensor& tensor, const Parts& parts,
                  const PackedScales& packed, CUkernel pack, uintptr_t base) {
  GEMMD_ASSIGN_OR_RETURN(Upload upload, gpu.uploads.Begin());
  for (const Parts::Part& part : parts.all()) {
    GEMMD_RETURN_IF_ERROR(upload.Copy(base + part.offset, part.bytes));
  }
  if (pack != nullptr) {
    GEMMD_RETURN_IF_ERROR(
        PackUnits(gpu, tensor, packed, pack, parts.AddressesFrom(base).packed, upload));
  }
  return upload.Finish();
}

uint64_t UnitsBytes(const StandardTensor& tensor) {
  const LayerShape& shape = tensor.shape;
  return static_cast<uint64_t>(PackArgsOf(tensor.spec, shape).layout.Bytes(shape.n, shape.k));
}

}  // namespace

CudaGpu::CudaGpu(const cuda::DriverTable& table, int device_ordinal, cuda::PrimaryContext primary,
                 GpuKernelsOptions options)
    : driver(table), ordinal(device_ordinal), context(std::move(primary)), kernels(table, [&] {
        options.context = context.get();
        options.observer = [this, next = std::move(options.observer)](const KernelEvent& event) {
          Remember(event.status);
          if (next) next(event);
        };
        return std::move(options);
      }()) {}

absl::Status CudaGpu::health() const {
  MutexLock lock(mutex_);
  return health_;
}

void CudaGpu::Remember(const absl::Status& status) {
  if (!absl::IsDataLoss(status)) return;
  MutexLock lock(mutex_);
  if (health_.ok()) health_ = status;
}

absl::StatusOr<std::shared_ptr<CudaLayer>> CudaLayer::Load(std::shared_ptr<CudaGpu> gpu,
                                                           const StandardTensor& tensor,
                                                           const PackedScales& packed,
                                                           CudaLayerKernels kernels) {
  const Parts parts(tensor, packed, kernels.pack == nullptr ? 0 : UnitsBytes(tensor));
  GEMMD_ASSIGN_OR_RETURN(cuda::VmmAllocation memory,
                         cuda::VmmAllocation::Create(gpu->driver, gpu->ordinal, parts.bytes()));
  const uintptr_t base = memory.address();
  GEMMD_RETURN_IF_ERROR(Fill(*gpu, tensor, parts, packed, kernels.pack, base));
  return std::shared_ptr<CudaLayer>(new CudaLayer(std::move(gpu), tensor, std::move(kernels),
                                                  std::move(memory), parts.AddressesFrom(base),
                                                  parts.TensorsOfXFrom(base)));
}

CudaLayer::CudaLayer(std::shared_ptr<CudaGpu> gpu, const StandardTensor& tensor,
                     CudaLayerKernels kernels, cuda::VmmAllocation memory,
                     const LayerAddresses& addresses, const QuantizeTensors& tensors_of_x)
    : gpu_(std::move(gpu)),
      spec_(tensor.spec),
      shape_(tensor.shape),
      gate_up_interleaved_(tensor.gate_up_interleaved),
      has_encoding_(tensor.encoding.present()),
      has_activation_zero_point_(!tensor.activation_zero_point.empty()),
      folded_input_scale_(kernels.folded_input_scale),
      kernels_(std::move(kernels.planned)),
      moe_kernels_(kernels.moe),
      memory_(std::move(memory)),
      weights_(MakeWeightArgs(spec_, shape_, tensor.scale_columns, addresses)),
      tensors_of_x_(tensors_of_x),
      shares_input_scale_(SharesInputScale(tensor)) {
  gpu_->weights_bytes += memory_->size();
}

absl::StatusOr<const QuantizeKernel*> CudaLayer::TransformerFor(ElementType x_type, int64_t block) const {
  if (folded_input_scale_) {
    return Error(absl::StatusCode::kUnimplemented, "UNSUPPORTED_OPTION",
                 "options.hadamard_block: this device has the layer's input scale in the scales of the weights, and "
                 "the transform belongs between them; the CPU device takes such requests");
  }
  QuantizeKernel plain;  // only transforms
  plain.x_type = plain.code_type = x_type;
  plain.mode = QuantizeMode::kNone;
  plain.k = shape_.k;
  const QuantizeKernel* const known = QuantizerFor(x_type);
  return gpu_->kernels.FindHadamardKernel(known != nullptr ? *known : plain, block);
}

SpecialisedKernels CudaLayer::specialised() const {
  const KernelProgress progress = kernels_->progress();
  return {progress.total, progress.ready, progress.failed};
}

std::vector<KernelNumerics> CudaLayer::numerics() const {
  const std::shared_ptr<const LayerPlan> plan = this->plan();
  if (plan->dense.ranges.empty()) return {};
  const GemmKernel& generic = plan->dense.KernelFor(1);
  std::vector<KernelNumerics> found = {{generic.numerics, generic.name, kNoFormat}};
  for (const LayerPlan::Invariant& invariant : plan->invariant) {
    const GemmKernel& kernel = invariant.kernel;
    if (kernel.kernel == nullptr) continue;
    found.push_back({kernel.numerics, kernel.name, FormatOf(invariant.x_type)});
  }
  return found;
}

CudaLayer::~CudaLayer() {
  gpu_->weights_bytes -= memory_->size();
  const cuda::ScopedContext scope(gpu_->context);
  memory_.reset();
}

}  // namespace gemmd
