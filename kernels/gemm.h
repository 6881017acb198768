// What    Front of kernels/: a layer's problem -> its kernels, compiled, tested and loaded. The host
//         side of their arguments: kernels/weight_args.h; launching: kernels/launch/.
//           auto cache = OpenKernelCache(directory);                     // one per node
//           GpuKernels kernels(driver, {.context = context, ...});       // one per GPU
//           auto packing = kernels.PackingOf(spec, shape, tensors);      // when a layer is loaded:
//           auto layer = kernels.PlanLayer(spec, shape, packing.why_not, deadline);
//           (*layer)->Specialise();                                      //   the generic kernels serve
//           auto plan = (*layer)->plan();                                // a request
//           LaunchDense(driver, plan->DenseKernelFor(request), args, stream);
// Errors  Unimplemented NO_KERNEL: no kernel for this architecture, format or shape, with the
//         reason. Unavailable NVRTC_MISSING, Internal COMPILE_FAILED, DeadlineExceeded: as
//         jit::KernelCache. Internal KERNEL_QUARANTINED, DataLoss CONTEXT_LOST: a generic kernel
//         failed its self-test. What fails of a specialised kernel is no error: the generic one serves.
// Threads GpuKernels is thread-safe. What it makes is valid while it lives.
#ifndef GEMMD_KERNELS_GEMM_H_
#define GEMMD_KERNELS_GEMM_H_

#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/contract/gemm_args.h"
#include "kernels/contract/moe_args.h"
#include "kernels/contract/quant_spec.h"
#include "kernels/cuda/driver.h"
#include "kernels/kernel_event.h"
#include "kernels/launch/gemm_launch.h"
#include "kernels/launch/layer_plan.h"
#include "kernels/launch/moe_launch.h"
#include "kernels/launch/pack_launch.h"
#include "kernels/launch/quantize_launch.h"
#include "kernels/layer_kernels.h"
#include "kernels/contract/layer_traits.h"
#include "kernels/pack/pack_weights.h"
#include "kernels/self_test.h"
#include "kernels/tuning.h"
#include "kernels/weight_args.h"

namespace gemmd {

namespace jit {
class KernelCache;
}

// Empty `directory`: memory only.
absl::StatusOr<std::shared_ptr<jit::KernelCache>> OpenKernelCache(
    const std::filesystem::path& directory);

struct GpuKernelsOptions {
  CUcontext context = nullptr;  // the GPU's; current in every call of GpuKernels
  std::string architecture;     // "sm_90a"
  std::shared_ptr<jit::KernelCache> cache;
  // Layers are served while their specialised kernels compile (kernels/specialiser.h).
  bool serves_meanwhile = false;
  // Makes what tests GEMM kernels before they serve; null: they are not tested.
  std::unique_ptr<SelfTester> (*make_tester)(const cuda::DriverTable&) = &DeviceSelfTester;
  KernelObserver observer = nullptr;
  // Plans follow what it knows of `device`, and Tune fills it. Null: plans follow the model.
  std::shared_ptr<TuningStore> tuning;
  DeviceClass device;
  uint64_t l2_bytes = 0;
};

// Whether a layer's weights are packed on a GPU, and what the host packs of them.
struct WeightPacking {
  std::string why_not;  // empty: they are packed
  PackedScales scales;
};

class GpuKernels {
 public:
  // `driver` outlives the object.
  GpuKernels(const cuda::DriverTable& driver, GpuKernelsOptions options);
  ~GpuKernels();
  GpuKernels(const GpuKernels&) = delete;
  GpuKernels& operator=(const GpuKernels&) = delete;

  // Looks at the weights: infinite ones, for example, stay as they are.
  WeightPacking PackingOf(const QuantSpec& spec, const LayerShape& shape,
                          const WeightTensors& tensors) const;
  // Compiles the layer's generic kernels where they are not cached, and loads them: seconds.
  // `why_not_packed`: WeightPacking::why_not.
  absl::StatusOr<std::unique_ptr<LayerKernels>> PlanLayer(const QuantSpec& spec,
                                                          const LayerShape& shape,
                                                          const std::string& why_not_packed,
                                                          absl::Time deadline,
                                                          const LayerTraits& traits = {});
  // What packs the codes of layers whose plans have packed kernels (LaunchPack).
  absl::StatusOr<CUkernel> LoadPackKernel(absl::Time deadline);
  // What transforms x by Hadamard blocks in the launch of `plain` (HadamardKernels::Find); valid while the object
  // lives. Unavailable KERNEL_COMPILING: it is asked for now. The GPU's context is current.
  absl::StatusOr<const QuantizeKernel*> FindHadamardKernel(const QuantizeKernel& plain, int64_t block);
  // The kernels around the GEMMs of a mixture-of-experts request.
  absl::StatusOr<MoeKernels> LoadMoeKernels(absl::Time deadline);

  // Measures kernels for the layers on this GPU (layer_tuner.h), one call after the other. Layers that are
  // planned follow what was found when it returns, those to come from the start. Needs
  // GpuKernelsOptions::tuning.
  absl::Status Tune(const std::vector<TuneLayer>& layers, const TuneSettings& settings,
                    const TuningControl& control, const TuneProgress& progress);

  // Has the generic kernels of common formats compiled when nothing is more urgent.
  void CompileCommonKernels();

  KernelCounts counts() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_GEMM_H_
