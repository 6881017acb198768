#include "core/exec/cuda_explain.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/contract/element_format.h"

namespace gemmd {
namespace {

// "3 of 14 ready, 4 compile, 7 wait for the first request with their x".
std::string ProgressText(const KernelProgress& progress) {
  std::string text = absl::StrCat(progress.ready, " of ", progress.total, " ready");
  if (progress.pending > 0) absl::StrAppend(&text, ", ", progress.pending, " compile");
  if (progress.waiting > 0) {
    absl::StrAppend(&text, ", ", progress.waiting, " wait for the first request with their x");
  }
  if (progress.failed > 0) {
    absl::StrAppend(&text, ", ", progress.failed, " failed: ", progress.error);
  }
  return text;
}

// The request that the plan's specialised kernels are for, if it has any.
DenseRequest TypicalRequest(const LayerPlan& plan, int64_t m) {
  DenseRequest request{.m = m};
  if (plan.packed.empty()) return request;
  request.x_type = plan.packed.front().x_type;
  request.has_group_scale = plan.packed_takes_group_scales;
  return request;
}

std::string WhyChosen(const LayerPlan& plan, const KernelProgress& progress) {
  if (plan.packed.empty()) {
    return absl::StrCat(
        "the generic kernel serves every M and uses x in the type the request gives: ",
        plan.why_not_packed);
  }
  const std::string types =
      absl::StrJoin(plan.packed, " or ", [](std::string* out, const LayerPlan::Packed& packed) {
        absl::StrAppend(out, ElementTypeName(packed.x_type));
      });
  return absl::StrCat("for ", types, " x ", plan.packed_takes_group_scales ? "with" : "without",
                      " scales per group of columns",
                      plan.quantizers.empty() ? "" : " (x of 16 or 32 bits is quantized first)",
                      "; other x and batch-invariant requests take the "
                      "generic kernel, all requests do until their kernel is there. Specialised "
                      "kernels: ",
                      ProgressText(progress));
}

}  // namespace

KernelExplanation ExplainGemm(const CudaLayer& layer, int64_t m) {
  const std::shared_ptr<const LayerPlan> plan = layer.plan();
  const KernelProgress progress = layer.kernels().progress();
  const GemmKernel& kernel = plan->dense.ranges.empty()
                                 ? plan->indexed.KernelFor(m)
                                 : plan->DenseKernelFor(TypicalRequest(*plan, m));
  KernelExplanation explanation;
  explanation.m = m;
  explanation.choice.kernel = kernel.name;
  explanation.choice.activation_used = layer.spec().activation;
  explanation.choice.reason = WhyChosen(*plan, progress);
  explanation.config = kernel.config;
  explanation.config.emplace_back("architecture", kernel.architecture);
  explanation.config.emplace_back("batch_invariant", plan->packed.empty()
                                                         ? "always: one order along K"
                                                         : "the generic kernel: one order along K");
  if (progress.total > 0) {
    explanation.config.emplace_back("specialised_kernels", ProgressText(progress));
  }
  return explanation;
}

}  // namespace gemmd
