#include "core/exec/cuda_explain.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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

std::vector<ElementType> XTypesOf(const LayerPlan& plan) {
  std::vector<ElementType> types;
  for (const LayerPlan::Packed& packed : plan.packed) {
    if (!packed.half_sums) types.push_back(packed.x_type);
  }
  return types;
}

std::string WhyChosen(const LayerPlan& plan, const KernelProgress& progress) {
  const std::string multiplied =
      plan.scalers.empty() ? "" : "x of 16 and more bits is multiplied by the input scale first; ";
  if (plan.packed.empty()) {
    return absl::StrCat(
        multiplied, "the generic kernel serves every M and uses x in the type the request gives: ",
        plan.why_not_packed);
  }
  const std::string types =
      absl::StrJoin(XTypesOf(plan), " or ", [](std::string* out, ElementType x_type) {
        absl::StrAppend(out, ElementTypeName(x_type));
      });
  return absl::StrCat(multiplied, "for ", types, " x ", plan.packed_takes_group_scales ? "with" : "without",
                      " scales per group of columns",
                      plan.quantizers.empty() ? "" : " (x of 16 or 32 bits is quantized first)",
                      "; other x and batch-invariant requests that name no numerics take the "
                      "generic kernel, all requests do until their kernel is there. Specialised "
                      "kernels: ",
                      ProgressText(progress));
}

// "generic a1... ; gemm_sm90_... b2... when named, for bfloat16 x".
std::string InvariantText(const LayerPlan& plan) {
  if (plan.dense.ranges.empty()) return "always: one order along K";
  const GemmKernel& generic = plan.dense.KernelFor(1);
  std::string text = absl::StrFormat("%s, numerics %016x", generic.name, generic.numerics);
  if (plan.invariant.empty()) return text + ": for good";
  for (const LayerPlan::Invariant& invariant : plan.invariant) {
    const GemmKernel& kernel = invariant.kernel;
    const std::string x = ElementTypeName(invariant.x_type);
    absl::StrAppend(&text, "; for ", x, " x ",
                    kernel.kernel == nullptr
                        ? absl::StrCat(kernel.name, " once it is there and is named")
                        : absl::StrFormat("%s where numerics %016x are named", kernel.name,
                                          kernel.numerics));
  }
  return text;
}

// Empty: no kernel for so many rows sums in float16.
std::string HalfSumsText(const LayerPlan& plan, int64_t m) {
  for (const LayerPlan::Packed& packed : plan.packed) {
    if (!packed.half_sums) continue;
    const GemmKernel& kernel = packed.plan.KernelFor(m);
    if (!kernel.half_sums) return "";  // small tiles
    return absl::StrCat(kernel.name, " for ", ElementTypeName(packed.x_type), " x",
                        kernel.kernel == nullptr ? ", compiled once a request permits it" : "");
  }
  return "";
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
  // Only in front of a kernel for 8-bit x; all others take x as the request has it.
  const bool is_generic = plan->dense.ranges.empty() || &kernel == &plan->dense.KernelFor(m);
  if (!plan->quantizers.empty() && !is_generic) explanation.choice.activation_used = layer.spec().activation;
  explanation.choice.reason = WhyChosen(*plan, progress);
  explanation.config = kernel.config;
  explanation.config.emplace_back("architecture", kernel.architecture);
  explanation.config.emplace_back("batch_invariant", InvariantText(*plan));
  if (const std::string text = HalfSumsText(*plan, m); !text.empty()) {
    explanation.config.emplace_back("fp16_accumulation", text);
  }
  explanation.config.emplace_back("numerics", absl::StrFormat("%016x", kernel.numerics));
  if (const QuantizeKernel* const before = layer.QuantizerFor(ElementType::kBFloat16)) {
    const bool quantizes = before->mode != QuantizeMode::kNone;
    explanation.config.emplace_back(quantizes ? "quantizer" : "multiplier", before->name);  // for such x
  }
  if (progress.total > 0) {
    explanation.config.emplace_back("specialised_kernels", ProgressText(progress));
  }
  return explanation;
}

}  // namespace gemmd
