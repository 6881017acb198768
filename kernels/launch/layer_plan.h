// What    LayerPlan: which kernel serves which request on one layer. An immutable value: when one more
//         kernel has been compiled, another plan takes its place (kernels/layer_kernels.h), and
//         requests in flight keep the plan that they started with.
// Keys    A batch-invariant request takes the generic kernel, or the one kernel of `invariant` for its
//         type of x when it names that kernel's numerics: bits that depend on the row alone, and that
//         change at no moment but the one that the client picks. Other requests may get other bits
//         (within the same bounds) once their specialised kernel is there.
// Errors  FailedPrecondition NUMERICS_NOT_READY: a request names numerics that no loaded kernel for such
//         requests has.
//         A request that permits sums of float16 takes the kernel that sums so once it is there, and until
//         then, or where none is, the one that other requests take.
// Threads Immutable once built.
#ifndef GEMMD_KERNELS_LAUNCH_LAYER_PLAN_H_
#define GEMMD_KERNELS_LAUNCH_LAYER_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/contract/element_type.h"
#include "kernels/contract/gemm_args.h"
#include "kernels/launch/gemm_plan.h"
#include "kernels/launch/quantize_launch.h"

namespace gemmd {

// What decides which kernel serves a dense request.
struct DenseRequest {
  int64_t m = 0;
  ElementType x_type = ElementType::kBFloat16;
  bool has_group_scale = false;  // x has scales per group of columns
  bool batch_invariant = false;  // a row's bits may not depend on M
  bool has_x_map = true;         // x may have a map (launch/tensor_maps.h)
  uint64_t numerics = 0;         // batch-invariant: GemmKernel::numerics wanted; 0 = the generic kernel's
  bool half_sums = false;        // sums may be float16; without meaning for a batch-invariant request
};

// What the caller of a dense request asks for beside its matrices.
struct DenseOptions {
  bool batch_invariant = false;
  uint64_t numerics = 0;
  bool half_sums = false;
};

DenseRequest DenseRequestOf(const GemmArgs& args, const DenseOptions& options);

// Which specialised kernels are for a request.
struct KernelUse {
  ElementType x_type = ElementType::kBFloat16;
  bool batch_invariant = false;
  bool half_sums = false;

  bool operator==(const KernelUse&) const = default;
};
KernelUse KernelUseOf(const DenseRequest& request);

struct LayerPlan {
  // Specialised kernels: they read packed weights (contract/packed_weights.h) and x of one type. One
  // whose `kernel` is null is not there (yet): the generic kernel serves its range.
  struct Packed {
    ElementType x_type;
    GemmPlan plan;           // its last range is bounded
    bool half_sums = false;  // of some of its kernels
  };
  // For batch-invariant requests of any M with x of one type. It is armed when its `kernel` is there.
  struct Invariant {
    ElementType x_type;
    GemmKernel kernel;
  };

  GemmPlan dense;    // any request; no ranges when the layer has several experts
  GemmPlan indexed;  // for mixture-of-experts requests
  std::vector<Packed> packed;
  std::vector<Invariant> invariant;
  bool packed_takes_group_scales = false;  // and no x without them
  std::string why_not_packed;              // when `packed` is empty

  // What makes the 8-bit x of `packed` from wider x, one for each type; they serve as long as the layer
  // lives, so that its numbers do not change when a kernel arrives.
  std::vector<QuantizeKernel> quantizers;
  std::string why_not_quantized;  // when `quantizers` is empty
  // What multiplies x by the layer's input scale and does not quantize it, one for each type of x that is
  // multiplied; none without an input scale.
  std::vector<QuantizeKernel> scalers;

  // Null: x of this type is not quantized; not multiplied.
  const QuantizeKernel* QuantizerFor(ElementType x_type) const;
  const QuantizeKernel* ScalerFor(ElementType x_type) const;

  // Whether specialised kernels for requests of this kind exist, loaded or not.
  bool HasPackedFor(const DenseRequest& request) const;
  // Whether all of them are loaded.
  bool HasAllFor(const DenseRequest& request) const;
  // The kernel of a request that names no numerics.
  const GemmKernel& DenseKernelFor(const DenseRequest& request) const;
  // The kernel of any request.
  absl::StatusOr<const GemmKernel*> Serve(const DenseRequest& request) const;
  // What a batch-invariant request of this kind may name beside the generic kernel; null: nothing yet.
  const GemmKernel* ArmedFor(const DenseRequest& request) const;

 private:
  const Packed* PackedFor(const DenseRequest& request) const;
  const GemmKernel* LoadedFor(const DenseRequest& request) const;
  const GemmKernel* InvariantFor(const DenseRequest& request) const;
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_LAUNCH_LAYER_PLAN_H_
