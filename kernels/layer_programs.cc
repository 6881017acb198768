#include "kernels/layer_programs.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/select/gemm_config.h"
#include "kernels/select/heuristics.h"
#include "kernels/select/legality.h"
#include "kernels/select/sm90_config.h"

namespace gemmd {
namespace {

absl::StatusOr<jit::KernelSource> GemmProgram(const QuantSpec& spec, RowMapping mapping,
                                              const std::string& architecture) {
  const GemmConfig config = ChooseConfig(spec, mapping);
  GEMMD_RETURN_IF_ERROR(Supports(config, architecture));
  return jit::KernelSource{RenderProgram(config), KernelNameExpression(config), architecture,
                           KernelName(config)};
}

// The kernels for packed weights, where the architecture has them.
void AddPackedPrograms(const QuantSpec& spec, const LayerShape& shape,
                       const std::string& architecture, std::vector<jit::KernelSource>& programs) {
  if (!SupportsSm90(spec, shape, architecture).ok()) return;
  for (const ElementType x_type : Sm90XTypes(spec)) {
    for (const Sm90Choice& choice : ChooseSm90(spec, shape, x_type)) {
      programs.push_back({RenderProgram(choice.config), KernelNameExpression(choice.config),
                          architecture, KernelName(choice.config)});
    }
  }
}

}  // namespace

absl::StatusOr<std::vector<jit::KernelSource>> LayerPrograms(const QuantSpec& spec,
                                                             const LayerShape& shape,
                                                             const std::string& architecture) {
  GEMMD_RETURN_IF_ERROR(SupportsShape(shape));
  std::vector<jit::KernelSource> programs;
  for (const RowMapping mapping : {RowMapping::kDense, RowMapping::kIndexed}) {
    if (mapping == RowMapping::kDense && shape.experts != 1) continue;
    GEMMD_ASSIGN_OR_RETURN(jit::KernelSource program, GemmProgram(spec, mapping, architecture));
    programs.push_back(std::move(program));
  }
  AddPackedPrograms(spec, shape, architecture, programs);
  return programs;
}

std::vector<jit::KernelSource> MoePrograms(const std::string& architecture) {
  constexpr const char* kKernels[][2] = {
      {"moe_route", "MoeRouteTopK"}, {"moe_sort", "MoeCount"},        {"moe_sort", "MoePrefix"},
      {"moe_sort", "MoeScatter"},    {"moe_activate", "MoeActivate"}, {"moe_combine", "MoeCombine"},
  };
  std::vector<jit::KernelSource> programs;
  for (const auto& [header, name] : kKernels) {
    programs.push_back({absl::StrCat("#include \"kernels/device/", header, ".cuh\"\n"),
                        absl::StrCat("gemmd::device::", name), architecture, name});
  }
  return programs;
}

}  // namespace gemmd
