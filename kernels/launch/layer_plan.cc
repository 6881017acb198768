#include "kernels/launch/layer_plan.h"

#include "kernels/launch/x_map.h"

namespace gemmd {

namespace {

// The kernel of the request's range, or the next one before it that takes such x.
const GemmKernel* FittingKernel(const GemmPlan& plan, const DenseRequest& request) {
  size_t i = 0;
  while (i + 1 < plan.ranges.size() && request.m > plan.ranges[i].largest_m) ++i;
  for (; !request.has_x_map && plan.ranges[i].kernel.needs_x_map; --i) {
    if (i == 0) return nullptr;
  }
  return &plan.ranges[i].kernel;
}

}  // namespace

DenseRequest DenseRequestOf(const GemmArgs& args, bool batch_invariant) {
  return {args.m, args.x_type, args.group_scale != nullptr, batch_invariant, HasXMap(args)};
}

const LayerPlan::Packed* LayerPlan::PackedFor(const DenseRequest& request) const {
  if (request.batch_invariant || request.has_group_scale != packed_takes_group_scales) {
    return nullptr;
  }
  for (const Packed& candidate : packed) {
    if (candidate.x_type == request.x_type) return &candidate;
  }
  return nullptr;
}

const QuantizeKernel* LayerPlan::QuantizerFor(ElementType x_type) const {
  for (const QuantizeKernel& quantizer : quantizers) {
    if (quantizer.x_type == x_type) return &quantizer;
  }
  return nullptr;
}

bool LayerPlan::HasPackedFor(const DenseRequest& request) const {
  return PackedFor(request) != nullptr;
}

const GemmKernel& LayerPlan::DenseKernelFor(const DenseRequest& request) const {
  const Packed* const candidate = PackedFor(request);
  if (candidate != nullptr && request.m <= candidate->plan.ranges.back().largest_m) {
    const GemmKernel* const kernel = FittingKernel(candidate->plan, request);
    if (kernel != nullptr && kernel->kernel != nullptr) return *kernel;
  }
  return dense.KernelFor(request.m);
}

}  // namespace gemmd
