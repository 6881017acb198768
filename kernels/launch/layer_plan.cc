#include "kernels/launch/layer_plan.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/status.h"
#include "kernels/launch/tensor_maps.h"

namespace gemmd {

namespace {

const QuantizeKernel* ForType(const std::vector<QuantizeKernel>& kernels, ElementType x_type) {
  for (const QuantizeKernel& kernel : kernels) {
    if (kernel.x_type == x_type) return &kernel;
  }
  return nullptr;
}

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

DenseRequest DenseRequestOf(const GemmArgs& args, const DenseOptions& options) {
  return {.m = args.m,
          .x_type = args.x_type,
          .has_group_scale = args.group_scale != nullptr,
          .batch_invariant = options.batch_invariant,
          .has_x_map = HasXMap(args),
          .numerics = options.numerics,
          .half_sums = options.half_sums && !options.batch_invariant};
}

KernelUse KernelUseOf(const DenseRequest& request) {
  return {request.x_type, request.batch_invariant, request.half_sums};
}

const LayerPlan::Packed* LayerPlan::PackedFor(const DenseRequest& request) const {
  if (request.batch_invariant || request.has_group_scale != packed_takes_group_scales) {
    return nullptr;
  }
  for (const Packed& candidate : packed) {
    if (candidate.x_type == request.x_type && candidate.half_sums == request.half_sums) return &candidate;
  }
  return nullptr;
}

const QuantizeKernel* LayerPlan::QuantizerFor(ElementType x_type) const {
  return ForType(quantizers, x_type);
}

const QuantizeKernel* LayerPlan::ScalerFor(ElementType x_type) const {
  return ForType(scalers, x_type);
}

const GemmKernel* LayerPlan::InvariantFor(const DenseRequest& request) const {
  if (!request.batch_invariant || request.has_group_scale != packed_takes_group_scales) {
    return nullptr;
  }
  for (const Invariant& candidate : invariant) {
    if (candidate.x_type == request.x_type) return &candidate.kernel;
  }
  return nullptr;
}

const GemmKernel* LayerPlan::ArmedFor(const DenseRequest& request) const {
  const GemmKernel* const kernel = InvariantFor(request);
  return kernel != nullptr && kernel->kernel != nullptr ? kernel : nullptr;
}

bool LayerPlan::HasPackedFor(const DenseRequest& request) const {
  return PackedFor(request) != nullptr || InvariantFor(request) != nullptr;
}

bool LayerPlan::HasAllFor(const DenseRequest& request) const {
  if (request.batch_invariant) return ArmedFor(request) != nullptr;
  const Packed* const candidate = PackedFor(request);
  return candidate != nullptr &&
         std::all_of(candidate->plan.ranges.begin(), candidate->plan.ranges.end(),
                     [](const GemmPlan::Range& range) { return range.kernel.kernel != nullptr; });
}

const GemmKernel* LayerPlan::LoadedFor(const DenseRequest& request) const {
  const Packed* const candidate = PackedFor(request);
  if (candidate == nullptr || request.m > candidate->plan.ranges.back().largest_m) return nullptr;
  const GemmKernel* const kernel = FittingKernel(candidate->plan, request);
  return kernel != nullptr && kernel->kernel != nullptr ? kernel : nullptr;
}

const GemmKernel& LayerPlan::DenseKernelFor(const DenseRequest& request) const {
  const GemmKernel* kernel = LoadedFor(request);
  if (kernel == nullptr && request.half_sums) {
    DenseRequest other = request;
    other.half_sums = false;
    kernel = LoadedFor(other);
  }
  return kernel != nullptr ? *kernel : dense.KernelFor(request.m);
}

absl::StatusOr<const GemmKernel*> LayerPlan::Serve(const DenseRequest& request) const {
  const GemmKernel& unnamed = DenseKernelFor(request);
  if (request.numerics == 0 || request.numerics == unnamed.numerics) return &unnamed;
  const GemmKernel* const armed = ArmedFor(request);
  if (armed != nullptr && armed->numerics == request.numerics) return armed;
  const std::string known =
      armed == nullptr ? "" : absl::StrFormat(" and %016x (%s)", armed->numerics, armed->name);
  return Error(absl::StatusCode::kFailedPrecondition, "NUMERICS_NOT_READY",
               absl::StrFormat("numerics %016x: batch-invariant requests with such x have %016x (%s)%s",
                               request.numerics, unnamed.numerics, unnamed.name, known));
}

}  // namespace gemmd
