// What    Front of kernels/: a layer's problem -> Plan (compiled and loaded kernels), and the host
//         side of their arguments. Launching: kernels/launch/.
//           auto cache = OpenKernelCache(directory);           // one per node
//           GpuKernels kernels(driver, "sm_90a", cache);       // one per GPU
//           auto plan = kernels.PlanLayer(spec, shape);        // when a layer is loaded
//           LaunchDense(driver, plan->DenseKernelFor(request), args, stream);
// Errors  Unimplemented NO_KERNEL: no kernel for this architecture, format or shape, with the
//         reason. Unavailable NVRTC_MISSING, Internal COMPILE_FAILED, DeadlineExceeded: as
//         jit::KernelCache.
// Threads GpuKernels is thread-safe. Plans are immutable and valid while their GpuKernels lives.
#ifndef GEMMD_KERNELS_GEMM_H_
#define GEMMD_KERNELS_GEMM_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/contract/element_type.h"
#include "kernels/contract/gemm_args.h"
#include "kernels/contract/moe_args.h"
#include "kernels/contract/quant_spec.h"
#include "kernels/cuda/driver.h"
#include "kernels/launch/gemm_launch.h"
#include "kernels/launch/gemm_plan.h"
#include "kernels/launch/moe_launch.h"
#include "kernels/pack/pack_weights.h"

namespace gemmd {

namespace jit {
class KernelCache;
}

// Empty `directory`: memory only.
absl::StatusOr<std::shared_ptr<jit::KernelCache>> OpenKernelCache(
    const std::filesystem::path& directory);

// What decides which kernel serves a dense request.
struct DenseRequest {
  int64_t m = 0;
  ElementType x_type = ElementType::kBFloat16;
  bool has_group_scale = false;  // x has scales per group of columns
  bool batch_invariant = false;  // a row's bits may not depend on M
};

struct LayerPlan {
  // Kernels that read packed weights (contract/packed_weights.h) and x of one type.
  struct Packed {
    ElementType x_type;
    GemmPlan plan;  // its last range is bounded
  };

  GemmPlan dense;    // any request; no ranges when the layer has several experts
  GemmPlan indexed;  // for mixture-of-experts requests
  std::vector<Packed> packed;
  bool packed_takes_group_scales = false;
  std::string why_not_packed;  // when `packed` is empty

  const GemmKernel& DenseKernelFor(const DenseRequest& request) const;
};

class GpuKernels {
 public:
  // `driver` outlives the object; the GPU's context is current in every call.
  GpuKernels(const cuda::DriverTable& driver, std::string architecture,
             std::shared_ptr<jit::KernelCache> cache);
  ~GpuKernels();
  GpuKernels(const GpuKernels&) = delete;
  GpuKernels& operator=(const GpuKernels&) = delete;

  // Compiles what is not cached and loads it into the driver. May take seconds.
  absl::StatusOr<LayerPlan> PlanLayer(const QuantSpec& spec, const LayerShape& shape,
                                      absl::Time deadline);
  // The kernels around the GEMMs of a mixture-of-experts request.
  absl::StatusOr<MoeKernels> LoadMoeKernels(absl::Time deadline);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Device addresses of a layer's tensors; 0 where the layer has none.
struct LayerAddresses {
  uintptr_t codes = 0;
  uintptr_t scales = 0;
  uintptr_t zero_points = 0;
  uintptr_t secondary_scales = 0;
  uintptr_t group_index = 0;
  uintptr_t bias = 0;
  uintptr_t packed = 0;
  uintptr_t channel_factor = 0;
};

// `shape` passes SupportsShape (PlanLayer checks it).
WeightArgs MakeWeightArgs(const QuantSpec& spec, const LayerShape& shape, int64_t scale_columns,
                          const LayerAddresses& addresses);

// The kernels' name of an element type. Unimplemented UNSUPPORTED_DTYPE for others.
absl::StatusOr<ElementType> ElementTypeOf(const NumberFormat& format, bool is_signed_int);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_GEMM_H_
