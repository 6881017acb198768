#include "core/exec/cuda_layer.h"

#include <utility>

#include "kernels/base/status.h"
#include "kernels/contract/element_format.h"

namespace gemmd {
namespace {

constexpr uint64_t kPartAlignment = 256;

// Where each tensor lies in the layer's allocation.
class Parts {
 public:
  struct Part {
    absl::Span<const std::byte> bytes;
    uint64_t offset;
  };

  Parts(const StandardTensor& tensor, const PackedWeights& packed)
      : parts_{Place(tensor.codes),
               Place(tensor.scales),
               Place(tensor.zero_points),
               Place(tensor.secondary_scales),
               Place(tensor.group_index),
               Place(tensor.bias),
               Place(tensor.activation_scale),
               Place(packed.units),
               Place(packed.channel_factor)} {}

  uint64_t bytes() const { return end_; }
  const auto& all() const { return parts_; }

  LayerAddresses AddressesFrom(uintptr_t base) const {
    return {AddressOf(0, base), AddressOf(1, base), AddressOf(2, base), AddressOf(3, base),
            AddressOf(4, base), AddressOf(5, base), AddressOf(7, base), AddressOf(8, base)};
  }
  uintptr_t ActivationScaleFrom(uintptr_t base) const { return AddressOf(6, base); }

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
};

absl::Status CopyParts(const CudaGpu& gpu, const Parts& parts, uintptr_t base) {
  for (const Parts::Part& part : parts.all()) {
    if (part.bytes.empty()) continue;
    GEMMD_CUDA(gpu.driver, cuMemcpyHtoD, base + part.offset, part.bytes.data(), part.bytes.size());
  }
  // A copy from pageable memory may return before it is complete.
  GEMMD_CUDA(gpu.driver, cuStreamSynchronize, nullptr);
  return absl::OkStatus();
}

// Empty when no kernel reads packed weights: the layer's format has none, or its weights do not fit.
absl::StatusOr<PackedWeights> Pack(const StandardTensor& tensor, LayerKernels& kernels) {
  if (kernels.plan()->packed.empty()) return PackedWeights();
  absl::StatusOr<PackedWeights> packed =
      PackWeights(tensor.spec, tensor.shape,
                  {tensor.codes, tensor.scales, tensor.zero_points, tensor.secondary_scales});
  if (ReasonOf(packed.status()) != "NO_KERNEL") return packed;
  kernels.KeepGeneric(std::string(packed.status().message()));
  return PackedWeights();
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

absl::StatusOr<std::shared_ptr<CudaLayer>> CudaLayer::Upload(std::shared_ptr<CudaGpu> gpu,
                                                             const StandardTensor& tensor,
                                                             std::unique_ptr<LayerKernels> kernels,
                                                             MoeKernels moe_kernels) {
  GEMMD_ASSIGN_OR_RETURN(const PackedWeights packed, Pack(tensor, *kernels));
  const Parts parts(tensor, packed);
  GEMMD_ASSIGN_OR_RETURN(cuda::VmmAllocation memory,
                         cuda::VmmAllocation::Create(gpu->driver, gpu->ordinal, parts.bytes()));
  GEMMD_RETURN_IF_ERROR(CopyParts(*gpu, parts, memory.address()));
  return std::shared_ptr<CudaLayer>(new CudaLayer(
      std::move(gpu), tensor, packed, std::move(kernels), moe_kernels, std::move(memory)));
}

CudaLayer::CudaLayer(std::shared_ptr<CudaGpu> gpu, const StandardTensor& tensor,
                     const PackedWeights& packed, std::unique_ptr<LayerKernels> kernels,
                     MoeKernels moe_kernels, cuda::VmmAllocation memory)
    : gpu_(std::move(gpu)),
      spec_(tensor.spec),
      shape_(tensor.shape),
      gate_up_interleaved_(tensor.gate_up_interleaved),
      has_encoding_(tensor.encoding.present()),
      has_activation_zero_point_(!tensor.activation_zero_point.empty()),
      kernels_(std::move(kernels)),
      moe_kernels_(moe_kernels),
      memory_(std::move(memory)) {
  const Parts parts(tensor, packed);
  weights_ =
      MakeWeightArgs(spec_, shape_, tensor.scale_columns, parts.AddressesFrom(memory_->address()));
  activation_scale_ = reinterpret_cast<const float*>(parts.ActivationScaleFrom(memory_->address()));
  gpu_->weights_bytes += memory_->size();
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
