#include "kernels/select/gemm_config.h"

#include "absl/strings/str_cat.h"
#include "kernels/select/render.h"

namespace gemmd {

std::string RenderProgram(const GemmConfig& config) { return render::Program("gemm.cuh", config); }

std::string KernelNameExpression(const GemmConfig&) {
  return "gemmd::device::Gemm<gemmd::device::Config>";
}

std::vector<std::pair<std::string, std::string>> DescribeFields(const GemmConfig& config) {
  return render::Fields(config);
}

std::string NumberFormatName(const NumberFormat& format) {
  switch (format.kind) {
    case NumberKind::kNone:
      return "none";
    case NumberKind::kInteger:
      return absl::StrCat("int", format.bits);
    case NumberKind::kExponent:
      return absl::StrCat("e", format.exponent_bits, "m0");
    case NumberKind::kFloat:
      break;
  }
  if (format == kFloat32) return "f32";
  if (format == kFloat16) return "f16";
  if (format == kBFloat16) return "bf16";
  return absl::StrCat("e", format.exponent_bits, "m", format.mantissa_bits);
}

std::string KernelName(const GemmConfig& config) {
  const auto& [layer, compute, tuning] = config;
  return absl::StrCat("gemm_tf32x", compute.weight_terms, "_", NumberFormatName(layer.weight), "_",
                      NumberFormatName(layer.scale),
                      layer.codes == CodeOrder::kRows ? "_" : "_packed_",
                      compute.row_mapping == RowMapping::kDense ? "dense" : "indexed", "_",
                      tuning.block_m, "x", tuning.block_n, "x", tuning.block_k);
}

}  // namespace gemmd
