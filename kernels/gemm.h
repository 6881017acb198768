// What    Front of kernels/: a layer's problem -> Plan (compiled and loaded kernels), and the host
//         side of their arguments. Launching: kernels/launch/.
//           auto cache = OpenKernelCache(directory);           // one per node
//           GpuKernels kernels(driver, "sm_90a", cache);       // one per GPU
//           auto plan = kernels.PlanLayer(spec, shape);        // when a layer is loaded
//           LaunchDense(driver, plan->dense.KernelFor(m), args, stream);
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

namespace gemmd {

namespace jit {
class KernelCache;
}

// Empty `directory`: memory only.
absl::StatusOr<std::shared_ptr<jit::KernelCache>> OpenKernelCache(
    const std::filesystem::path& directory);

struct LayerPlan {
  GemmPlan dense;    // no ranges when the layer has several experts
  GemmPlan indexed;  // for mixture-of-experts requests
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
};

// `shape` passes SupportsShape (PlanLayer checks it).
WeightArgs MakeWeightArgs(const QuantSpec& spec, const LayerShape& shape, int64_t scale_columns,
                          const LayerAddresses& addresses);

// The kernels' name of an element type. Unimplemented UNSUPPORTED_DTYPE for others.
absl::StatusOr<ElementType> ElementTypeOf(const NumberFormat& format, bool is_signed_int);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_GEMM_H_
