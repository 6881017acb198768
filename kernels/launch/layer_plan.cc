#include "kernels/launch/layer_plan.h"

namespace gemmd {

const LayerPlan::Packed* LayerPlan::PackedFor(const DenseRequest& request) const {
  if (request.batch_invariant || request.has_group_scale != packed_takes_group_scales) {
    return nullptr;
  }
  for (const Packed& candidate : packed) {
    if (candidate.x_type == request.x_type) return &candidate;
  }
  return nullptr;
}

bool LayerPlan::HasPackedFor(const DenseRequest& request) const {
  return PackedFor(request) != nullptr;
}

const GemmKernel& LayerPlan::DenseKernelFor(const DenseRequest& request) const {
  const Packed* const candidate = PackedFor(request);
  if (candidate != nullptr && request.m <= candidate->plan.ranges.back().largest_m) {
    const GemmKernel& kernel = candidate->plan.KernelFor(request.m);
    if (kernel.kernel != nullptr) return kernel;
  }
  return dense.KernelFor(request.m);
}

}  // namespace gemmd
