#include "kernels/select/render.h"

namespace gemmd::render {
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

}  // namespace

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

Rendered Render(CodeOrder order) {
  switch (order) {
    case CodeOrder::kRows:
      return {"CodeOrder", "CodeOrder::kRows"};
    case CodeOrder::kPackedForWide:
      return {"CodeOrder", "CodeOrder::kPackedForWide"};
    case CodeOrder::kPackedForFloat8:
      return {"CodeOrder", "CodeOrder::kPackedForFloat8"};
    case CodeOrder::kPackedForInt8:
      return {"CodeOrder", "CodeOrder::kPackedForInt8"};
  }
  return {};
}

Rendered Render(RowMapping mapping) {
  return {"RowMapping",
          mapping == RowMapping::kDense ? "RowMapping::kDense" : "RowMapping::kIndexed"};
}

Rendered Render(bool value) { return {"bool", value ? "true" : "false"}; }

Rendered Render(int value) { return {"int", absl::StrCat(value)}; }

Rendered Render(ElementType type) {
  const char* name = "";
  switch (type) {
    case ElementType::kFloat32:
      name = "kFloat32";
      break;
    case ElementType::kFloat16:
      name = "kFloat16";
      break;
    case ElementType::kBFloat16:
      name = "kBFloat16";
      break;
    case ElementType::kFloat8E4M3:
      name = "kFloat8E4M3";
      break;
    case ElementType::kFloat8E5M2:
      name = "kFloat8E5M2";
      break;
    case ElementType::kInt8:
      name = "kInt8";
      break;
  }
  return {"ElementType", absl::StrCat("ElementType::", name)};
}

Rendered Render(QuantizeMode mode) {
  switch (mode) {
    case QuantizeMode::kStaticTensor:
      return {"QuantizeMode", "QuantizeMode::kStaticTensor"};
    case QuantizeMode::kDynamicToken:
      return {"QuantizeMode", "QuantizeMode::kDynamicToken"};
    case QuantizeMode::kDynamicGroup:
      return {"QuantizeMode", "QuantizeMode::kDynamicGroup"};
    case QuantizeMode::kNone:
      return {"QuantizeMode", "QuantizeMode::kNone"};
  }
  return {};
}

Rendered Render(InputActivation activation) {
  switch (activation) {
    case InputActivation::kNone:
      return {"InputActivation", "InputActivation::kNone"};
    case InputActivation::kSiluAndMul:
      return {"InputActivation", "InputActivation::kSiluAndMul"};
    case InputActivation::kSwigluClamped:
      return {"InputActivation", "InputActivation::kSwigluClamped"};
    case InputActivation::kReluSquared:
      return {"InputActivation", "InputActivation::kReluSquared"};
  }
  return {};
}

}  // namespace gemmd::render
