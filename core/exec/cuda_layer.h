// What    Weights of one layer on one GPU: one VMM allocation, in the standard representation but for the
//         codes where kernels want these packed; and its kernels.
// Memory  Exportable as a POSIX file descriptor; parts start at multiples of 256 bytes.
// Errors  Load: ResourceExhausted GPU_OOM; else as ToStatus.
// Threads Immutable after Load, but for the plan, which is replaced as kernels arrive. Destruction
//         makes the context current by itself.
#ifndef GEMMD_CORE_EXEC_CUDA_LAYER_H_
#define GEMMD_CORE_EXEC_CUDA_LAYER_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/exec/device.h"
#include "core/exec/upload_pool.h"
#include "core/quant/standard_tensor.h"
#include "kernels/base/mutex.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/vmm.h"
#include "kernels/gemm.h"

namespace gemmd {

// What the objects of one GPU share and keep alive: layers and memory may outlive the Device.
class CudaGpu {
 public:
  // Sets the context of `options`, and hears its observer's events first.
  CudaGpu(const cuda::DriverTable& table, int device_ordinal, cuda::PrimaryContext primary,
          GpuKernelsOptions options);

  const cuda::DriverTable& driver;
  const int ordinal;
  const cuda::PrimaryContext context;
  std::atomic<uint64_t> weights_bytes{0};
  UploadPool uploads{context};

  // OK, or the first error that only a new process cures.
  absl::Status health() const;
  void Remember(const absl::Status& status);

 private:
  mutable Mutex mutex_;
  absl::Status health_ ABSL_GUARDED_BY(mutex_);

 public:
  GpuKernels kernels;  // last: its thread reports to the members above; layers' kernels need it
};

// What a layer's plan was made with.
struct CudaLayerKernels {
  std::unique_ptr<LayerKernels> planned;
  MoeKernels moe;
  CUkernel pack = nullptr;  // null: the weights are not packed
  bool folded_input_scale = false;  // factors that differ between columns of x went into the weights' scales
};

class CudaLayer : public DeviceLayer {
 public:
  // The context of `gpu` is current. `packed`: of WeightPacking, for kernels.pack.
  static absl::StatusOr<std::shared_ptr<CudaLayer>> Load(std::shared_ptr<CudaGpu> gpu,
                                                         const StandardTensor& tensor,
                                                         const PackedScales& packed,
                                                         CudaLayerKernels kernels);
  ~CudaLayer() override;

  const QuantSpec& spec() const override { return spec_; }
  const LayerShape& shape() const override { return shape_; }
  bool gate_up_interleaved() const override { return gate_up_interleaved_; }
  uint64_t bytes() const override { return memory_->size(); }
  SpecialisedKernels specialised() const override;
  std::vector<KernelNumerics> numerics() const override;

  const CudaGpu& gpu() const { return *gpu_; }
  LayerKernels& kernels() const { return *kernels_; }
  // A request keeps the plan that it starts with.
  std::shared_ptr<const LayerPlan> plan() const { return kernels_->plan(); }
  // For mixture-of-experts requests; the same as long as the layer lives.
  const GemmPlan& indexed() const { return first_plan_->indexed; }
  const MoeKernels& moe_kernels() const { return moe_kernels_; }
  // What quantizes x of a dense request, or multiplies it by the input scale, or both; null: it is used as it is.
  // The same as long as the layer lives.
  const QuantizeKernel* QuantizerFor(ElementType x_type) const {
    const QuantizeKernel* const quantizer = has_encoding_ ? nullptr : first_plan_->QuantizerFor(x_type);
    return quantizer != nullptr ? quantizer : first_plan_->ScalerFor(x_type);
  }
  // What only multiplies x, also of mixtures of experts.
  const QuantizeKernel* ScalerFor(ElementType x_type) const { return first_plan_->ScalerFor(x_type); }
  // What transforms x of 16 or 32 bits by Hadamard blocks, in the launch that quantizes or multiplies it where there is
  // one. Errors: GpuKernels::FindHadamardKernel; Unimplemented UNSUPPORTED_OPTION: it would have to come between the
  // input scale and the weights, which are one here. The context is current.
  absl::StatusOr<const QuantizeKernel*> TransformerFor(ElementType x_type, int64_t block) const;
  std::string why_not_quantized() const {
    return has_encoding_ ? "the layer wants them encoded in its own way"
                         : first_plan_->why_not_quantized;
  }
  const WeightArgs& weights() const { return weights_; }
  // x that is quantized with the layer's static scale has a zero point, which no kernel takes off.
  bool has_activation_zero_point() const { return has_activation_zero_point_; }
  // Static activation scale [E] and input scale [E, K]; [K] when experts share it.
  const QuantizeTensors& tensors_of_x() const { return tensors_of_x_; }
  bool shares_input_scale() const { return shares_input_scale_; }

 private:
  CudaLayer(std::shared_ptr<CudaGpu> gpu, const StandardTensor& tensor, CudaLayerKernels kernels,
            cuda::VmmAllocation memory, const LayerAddresses& addresses,
            const QuantizeTensors& tensors_of_x);

  const std::shared_ptr<CudaGpu> gpu_;
  const QuantSpec spec_;
  const LayerShape shape_;
  const bool gate_up_interleaved_;
  const bool has_encoding_;  // of activations, beyond the spec: group scales of other types, zero points
  const bool has_activation_zero_point_;
  const bool folded_input_scale_;
  const std::unique_ptr<LayerKernels> kernels_;
  const std::shared_ptr<const LayerPlan> first_plan_ = kernels_->plan();
  const MoeKernels moe_kernels_;
  std::optional<cuda::VmmAllocation> memory_;
  const WeightArgs weights_;
  const QuantizeTensors tensors_of_x_;
  const bool shares_input_scale_;
};

}  // namespace gemmd

#endif  // GEMMD_CORE_EXEC_CUDA_LAYER_H_
