#include "kernels/select/gemm_config.h"

#include "absl/strings/str_cat.h"

namespace gemmd {
namespace {

const char* NameOf(NumberKind kind) {
  switch (kind) {
    case NumberKind::kNone:
      return "NumberKind::kNone";
    case NumberKind::kInteger:
      return "NumberKind::kInteger";
    case NumberKind::kFloat:
      return "NumberKind::kFloat";
    case NumberKind::kExponent:
      return "NumberKind::kExponent";
  }
  return "";
}

const char* NameOf(SpecialValues special) {
  switch (special) {
    case SpecialValues::kNone:
      return "SpecialValues::kNone";
    case SpecialValues::kNanOnly:
      return "SpecialValues::kNanOnly";
    case SpecialValues::kIeee:
      return "SpecialValues::kIeee";
  }
  return "";
}

// A field's C++ type and value.
struct Rendered {
  std::string type;
  std::string value;
};

Rendered Render(const NumberFormat& format) {
  return {"NumberFormat",
          absl::StrCat("{", NameOf(format.kind), ", ", format.bits, ", ", format.exponent_bits,
                       ", ", format.mantissa_bits, ", ", NameOf(format.special), "}")};
}

Rendered Render(ZeroPointKind kind) {
  switch (kind) {
    case ZeroPointKind::kNone:
      return {"ZeroPointKind", "ZeroPointKind::kNone"};
    case ZeroPointKind::kInteger:
      return {"ZeroPointKind", "ZeroPointKind::kInteger"};
    case ZeroPointKind::kFloat:
      return {"ZeroPointKind", "ZeroPointKind::kFloat"};
  }
  return {};
}

Rendered Render(SecondaryScaleKind kind) {
  switch (kind) {
    case SecondaryScaleKind::kNone:
      return {"SecondaryScaleKind", "SecondaryScaleKind::kNone"};
    case SecondaryScaleKind::kTensor:
      return {"SecondaryScaleKind", "SecondaryScaleKind::kTensor"};
    case SecondaryScaleKind::kChannel:
      return {"SecondaryScaleKind", "SecondaryScaleKind::kChannel"};
  }
  return {};
}

Rendered Render(RowMapping mapping) {
  return {"RowMapping",
          mapping == RowMapping::kDense ? "RowMapping::kDense" : "RowMapping::kIndexed"};
}

Rendered Render(bool value) { return {"bool", value ? "true" : "false"}; }

Rendered Render(int value) { return {"int", absl::StrCat(value)}; }

}  // namespace

std::string RenderProgram(const GemmConfig& config) {
  std::string program =
      "#include \"kernels/device/gemm.cuh\"\n"
      "namespace gemmd::device {\n"
      "struct Config {\n";
  VisitFields(config, [&](const char* name, const auto& field) {
    const Rendered rendered = Render(field);
    absl::StrAppend(&program, "  static constexpr ", rendered.type, " ", name, " = ",
                    rendered.value, ";\n");
  });
  absl::StrAppend(&program, "};\n}  // namespace gemmd::device\n");
  return program;
}

std::string KernelNameExpression(const GemmConfig&) {
  return "gemmd::device::Gemm<gemmd::device::Config>";
}

std::vector<std::pair<std::string, std::string>> DescribeFields(const GemmConfig& config) {
  std::vector<std::pair<std::string, std::string>> fields;
  VisitFields(config, [&](const char* name, const auto& field) {
    fields.emplace_back(name, Render(field).value);
  });
  return fields;
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
                      NumberFormatName(layer.scale), "_",
                      compute.row_mapping == RowMapping::kDense ? "dense" : "indexed", "_",
                      tuning.block_m, "x", tuning.block_n, "x", tuning.block_k);
}

}  // namespace gemmd
