// What    Weights of one layer on one GPU: one VMM allocation in the standard representation, and
//         the plan of its kernels.
// Memory  Exportable as a POSIX file descriptor; parts start at multiples of 256 bytes.
// Errors  Upload: ResourceExhausted GPU_OOM; else as ToStatus.
// Threads Immutable after Upload. Destruction makes the context current by itself.
#ifndef GEMMD_CORE_EXEC_CUDA_LAYER_H_
#define GEMMD_CORE_EXEC_CUDA_LAYER_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "core/exec/device.h"
#include "core/quant/standard_tensor.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/vmm.h"
#include "kernels/gemm.h"

namespace gemmd {

// What the objects of one GPU share and keep alive: layers and memory may outlive the Device.
struct CudaGpu {
  CudaGpu(const cuda::DriverTable& table, int device_ordinal, cuda::PrimaryContext primary,
          std::string architecture, std::shared_ptr<jit::KernelCache> cache)
      : driver(table),
        ordinal(device_ordinal),
        context(std::move(primary)),
        kernels(table, std::move(architecture), std::move(cache)) {}

  const cuda::DriverTable& driver;
  const int ordinal;
  const cuda::PrimaryContext context;
  GpuKernels kernels;  // plans of layers point into it
  std::atomic<uint64_t> weights_bytes{0};
};

class CudaLayer : public DeviceLayer {
 public:
  // The context of `gpu` is current.
  static absl::StatusOr<std::shared_ptr<CudaLayer>> Upload(std::shared_ptr<CudaGpu> gpu,
                                                           const StandardTensor& tensor,
                                                           LayerPlan plan, MoeKernels moe_kernels);
  ~CudaLayer() override;

  const QuantSpec& spec() const override { return spec_; }
  const LayerShape& shape() const override { return shape_; }
  bool gate_up_interleaved() const override { return gate_up_interleaved_; }
  uint64_t bytes() const override { return memory_->size(); }

  const CudaGpu& gpu() const { return *gpu_; }
  const LayerPlan& plan() const { return plan_; }
  const MoeKernels& moe_kernels() const { return moe_kernels_; }
  const WeightArgs& weights() const { return weights_; }
  // Device address of float32 [E]; null without a static activation scale.
  const float* activation_scale() const { return activation_scale_; }

 private:
  CudaLayer(std::shared_ptr<CudaGpu> gpu, const StandardTensor& tensor, const PackedWeights& packed,
            LayerPlan plan, MoeKernels moe_kernels, cuda::VmmAllocation memory);

  const std::shared_ptr<CudaGpu> gpu_;
  const QuantSpec spec_;
  const LayerShape shape_;
  const bool gate_up_interleaved_;
  const LayerPlan plan_;
  const MoeKernels moe_kernels_;
  std::optional<cuda::VmmAllocation> memory_;
  WeightArgs weights_{};
  const float* activation_scale_ = nullptr;
};

}  // namespace gemmd

#endif  // GEMMD_CORE_EXEC_CUDA_LAYER_H_
