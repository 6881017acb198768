#include "kernels/select/sm90_config.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/contract/code_order.h"
#include "kernels/contract/element_format.h"
#include "kernels/select/gemm_config.h"
#include "kernels/select/render.h"

namespace gemmd {
namespace {

absl::Status NoSm90Kernel(absl::string_view reason) {
  return Error(absl::StatusCode::kUnimplemented, "NO_KERNEL",
               absl::StrCat("the SM90 kernel does not take ", reason));
}

// Scales that are the same for a whole row of w multiply the finished sum.
bool HasGroups(const QuantSpec& spec, const LayerShape& shape) {
  return (spec.scale.present() || spec.zero_point != ZeroPointKind::kNone) &&
         spec.scale_block_k != 0 && spec.scale_block_k < shape.k;
}

// float32 stays, 16-bit types stay, 8-bit types are all bfloat16 numbers.
NumberFormat PackedScale(const NumberFormat& scale) { return scale.bits == 8 ? kBFloat16 : scale; }

// Columns that certainly share one scale: the largest power of two up to a chunk that divides the group.
int ScaleStep(int64_t group, int chunk_columns) {
  int step = chunk_columns;
  while (group % step != 0) step /= 2;
  return step;
}

// Whether the 16-bit type `x_type` holds every finite weight. Codes of infinity and NaN are refused when
// weights are packed; float16 has e5m2's.
bool IsExactIn(const NumberFormat& weight, ElementType x_type) {
  if (weight.bits > 8) return weight == FormatOf(x_type);
  if (weight.kind == NumberKind::kInteger) return true;
  if (x_type == ElementType::kBFloat16) return weight.mantissa_bits <= 7;
  return weight.exponent_bits < 5 ||
         (weight.exponent_bits == 5 && weight.special == SpecialValues::kIeee);
}

// Why 8-bit operands of x's type cannot hold the weights; empty when they can.
std::string WhyNotNarrow(const QuantSpec& spec, ElementType x_type) {
  const NumberFormat& weight = spec.weight;
  const bool has_zero_points = spec.zero_point != ZeroPointKind::kNone;
  const std::string what =
      absl::StrCat(NumberFormatName(weight), " weights", has_zero_points ? " with zero points" : "",
                   " with ", NumberFormatName(spec.activation), " activations");
  if (weight.kind == NumberKind::kInteger) {
    const int most =
        x_type == ElementType::kInt8 ? (has_zero_points ? 7 : 8) : (has_zero_points ? 0 : 4);
    return weight.bits <= most ? "" : what;
  }
  if (x_type == ElementType::kInt8) return weight == kFloat4E2M1 ? "" : what;
  if (weight == kFloat8E4M3 || weight == kFloat8E5M2) return "";
  const bool fits = weight.special == SpecialValues::kNone &&
                    (weight.exponent_bits == 0 ? weight.mantissa_bits <= 4
                                               : weight.exponent_bits <= 4 &&
                                                     weight.mantissa_bits <= 3 && weight.bits < 8);
  return fits ? "" : what;
}

// Smallest and largest exponent of a float's numbers, subnormals included.
int SmallestExponent(const NumberFormat& format) {
  if (format.kind == NumberKind::kExponent) return -127;
  return 1 - format.bias() - format.mantissa_bits;
}
int LargestExponent(const NumberFormat& format) {
  if (format.kind == NumberKind::kExponent) return 127;
  const int top = (1 << format.exponent_bits) - 1;
  return (format.special == SpecialValues::kIeee ? top - 1 : top) - format.bias();
}

// Whether weight times scale is a number of x's 16-bit type, or infinite in float32 too.
bool IsScaledExactly(const NumberFormat& weight, const NumberFormat& scale, ElementType x_type) {
  if (weight.kind != NumberKind::kFloat || weight.exponent_bits == 0 || scale.bits != 8)
    return false;
  const bool is_bfloat16 = x_type == ElementType::kBFloat16;
  const int significant = weight.mantissa_bits + 1 + scale.mantissa_bits + 1;
  const int smallest = SmallestExponent(weight) + SmallestExponent(scale);
  if (is_bfloat16) return significant <= 8 && smallest >= -133;
  // Both mantissas below 2: the product is below 2^(sum + 2).
  return significant <= 11 && smallest >= -24 &&
         LargestExponent(weight) + LargestExponent(scale) + 2 <= 16;
}

ElementType NarrowType(const NumberFormat& activation) {
  return activation == kFloat8E4M3   ? ElementType::kFloat8E4M3
         : activation == kFloat8E5M2 ? ElementType::kFloat8E5M2
                                     : ElementType::kInt8;
}

bool HasNarrowActivations(const QuantSpec& spec) {
  return spec.activation == kFloat8E4M3 || spec.activation == kFloat8E5M2 ||
         spec.activation == kInt8;
}

const char* ZeroPointMark(ZeroPointKind kind) {
  return kind == ZeroPointKind::kInteger ? "z" : kind == ZeroPointKind::kFloat ? "fz" : "";
}

}  // namespace

std::string RenderProgram(const Sm90Config& config) {
  return render::Program(config.is_slabwise() ? "gemm_sm90_slab.cuh" : "gemm_sm90.cuh", config);
}

std::string KernelNameExpression(const Sm90Config& config) {
  return config.is_slabwise() ? "gemmd::device::GemmSm90Slab<gemmd::device::Config>"
                              : "gemmd::device::GemmSm90<gemmd::device::Config>";
}

std::vector<std::pair<std::string, std::string>> DescribeFields(const Sm90Config& config) {
  return render::Fields(config);
}

PackedLayout Sm90Config::layout() const {
  PackedLayout layout = CodeLayoutOf(operand());
  layout.scale_bytes = group_scale.bits / 8;
  layout.scale_step = scale_step;
  layout.zero_point_bytes = PackedZeroPointBytes(zero_point);
  return layout;
}

PackedLayout Sm90Config::unit() const {
  PackedLayout unit = is_slabwise() ? layout().OneSlab() : layout();
  if (shares_scales) unit.scale_bytes = 0;
  return unit;
}

bool Sm90Config::sums_in_unit() const {
  if (operand().is_int8()) return !group_scale.present() && !has_x_scales;
  return operand().is_wide() && (scale_on_weights || !group_scale.present());
}

bool Sm90Config::can_have_half_sums() const {
  constexpr int kFewestTokens = 128;  // tiles of 64 gain nothing
  return is_slabwise() && tokens >= kFewestTokens && x_type == ElementType::kFloat16 && sums_in_unit();
}

std::string KernelName(const Sm90Config& config) {
  const Sm90Block block = config.block();
  const char* x = "";
  switch (config.x_type) {
    case ElementType::kBFloat16:
      x = "bf16";
      break;
    case ElementType::kFloat16:
      x = "f16";
      break;
    case ElementType::kFloat8E4M3:
      x = "e4m3";
      break;
    case ElementType::kFloat8E5M2:
      x = "e5m2";
      break;
    case ElementType::kInt8:
      x = "int8";
      break;
    case ElementType::kFloat32:
      break;
  }
  const std::string scale =
      config.group_scale.present()
          ? absl::StrCat(NumberFormatName(config.group_scale), "s", config.scale_step)
          : "rows";
  return absl::StrCat(
      "gemm_sm90_", x, config.has_x_scales ? "s_" : "_", NumberFormatName(config.weight),
      ZeroPointMark(config.zero_point), "_", scale, "_", config.tokens, "x",
      block.rows(), "x", config.column_groups * block.layout.chunk_columns(),
      config.sharers > 1 ? absl::StrCat("_share", config.sharers) : "",
      config.weight_sharers > 1 ? absl::StrCat("_wshare", config.weight_sharers) : "",
      config.splits_k ? "_split" : "", config.half_sums ? "_f16sums" : "");
}

std::vector<ElementType> Sm90XTypes(const QuantSpec& spec) {
  if (HasNarrowActivations(spec)) return {NarrowType(spec.activation)};
  std::vector<ElementType> types;
  for (const ElementType type : {ElementType::kBFloat16, ElementType::kFloat16}) {
    if (IsExactIn(spec.weight, type)) types.push_back(type);
  }
  return types;
}

absl::Status SupportsSm90(const QuantSpec& spec, const LayerShape& shape,
                          const std::string& architecture) {
  constexpr int64_t kLargestK = 1 << 30;         // bytes of a row of x are counted in 31 bits
  constexpr int64_t kLargestN = 1 << 23;         // so are the bytes of a chunk
  constexpr int64_t kLargestIntegerK = 1 << 17;  // sums of int8 products stay below 2^31
  if (architecture != "sm_90a") return NoSm90Kernel(absl::StrCat("architecture ", architecture));
  if (shape.experts != 1) return NoSm90Kernel(absl::StrCat(shape.experts, " experts"));
  if (shape.n >= kLargestN) return NoSm90Kernel(absl::StrCat("N = ", shape.n));
  if (shape.k >= kLargestK) return NoSm90Kernel(absl::StrCat("K = ", shape.k));
  if (spec.has_group_index) return NoSm90Kernel("a group index");
  const std::vector<ElementType> types = Sm90XTypes(spec);
  if (types.empty()) return NoSm90Kernel(absl::StrCat(NumberFormatName(spec.weight), " weights"));
  const Sm90Operand operand = {spec.weight, types.front()};
  if (!operand.is_wide()) {
    const std::string why = WhyNotNarrow(spec, operand.x_type);
    if (!why.empty()) return NoSm90Kernel(why);
  }
  const int step = CodeLayoutOf(operand).step_columns();
  if (HasGroups(spec, shape) && spec.scale_block_k % step != 0) {
    return NoSm90Kernel(absl::StrCat("groups of ", spec.scale_block_k,
                                     " columns, which are no multiple of ", step));
  }
  if (spec.zero_point == ZeroPointKind::kFloat) {
    if (!operand.is_wide()) return NoSm90Kernel("floating-point zero points with 8-bit activations");
    if (spec.weight.kind != NumberKind::kInteger) {
      return NoSm90Kernel(absl::StrCat(NumberFormatName(spec.weight), " weights with floating-point zero points"));
    }
  }
  // Eight sets of scales and zero points do not fit into the registers of one thread.
  if (!operand.is_wide() && spec.zero_point == ZeroPointKind::kInteger && HasGroups(spec, shape) &&
      spec.scale_block_k % 64 != 0) {
    return NoSm90Kernel(
        absl::StrCat("zero points of ", spec.scale_block_k, " columns with 8-bit activations"));
  }
  if (spec.activation_scale == ActivationScaleKind::kDynamicGroup &&
      spec.activation_group < shape.k) {
    if (operand.is_wide()) return NoSm90Kernel("16-bit activations with group scales");
    if (spec.activation_group % CodeLayoutOf(operand).slab_columns() != 0) {
      return NoSm90Kernel(absl::StrCat("activation groups of ", spec.activation_group,
                                       " columns, which are no multiple of 128"));
    }
  }
  if (operand.is_int8() && !HasGroups(spec, shape) && shape.k > kLargestIntegerK) {
    return NoSm90Kernel(absl::StrCat("int8 sums over ", shape.k, " columns"));
  }
  return absl::OkStatus();
}

bool Sm90TakesXScales(const QuantSpec& spec, const LayerShape& shape) {
  return HasNarrowActivations(spec) &&
         spec.activation_scale == ActivationScaleKind::kDynamicGroup &&
         spec.activation_group < shape.k;
}

Sm90Packing Sm90PackingOf(const QuantSpec& spec, const LayerShape& shape) {
  Sm90Packing packing;
  packing.operand = {spec.weight, Sm90XTypes(spec).front()};
  if (packing.operand.is_wide()) packing.operand.x_type = ElementType::kBFloat16;
  packing.layout = CodeLayoutOf(packing.operand);
  if (HasGroups(spec, shape)) {
    packing.group_scale = PackedScale(spec.scale);
    packing.layout.scale_step = ScaleStep(spec.scale_block_k, packing.layout.chunk_columns());
    packing.is_folded = packing.operand.can_fold(spec.scale);
    if (packing.is_folded) packing.group_scale = spec.scale;
    packing.is_relative =
        packing.operand.is_wide() &&
        (IsScaledExactly(spec.weight, spec.scale, ElementType::kBFloat16) ||
         (spec.weight.kind == NumberKind::kInteger && packing.group_scale == kBFloat16));
  }
  // They are decoded in float32, times the scale.
  if (spec.zero_point == ZeroPointKind::kFloat) {
    packing.group_scale = kFloat32;
    packing.is_relative = true;
  }
  packing.layout.scale_bytes = packing.group_scale.bits / 8;
  packing.layout.zero_point_bytes = PackedZeroPointBytes(spec.zero_point);
  return packing;
}

bool Sm90MayNotFit(const QuantSpec& spec) {
  const Sm90Operand operand = {spec.weight, Sm90XTypes(spec).front()};
  return (operand.is_wide() && spec.weight.special != SpecialValues::kNone) ||
         (spec.zero_point != ZeroPointKind::kNone && spec.weight.bits == 8) ||
         spec.zero_point == ZeroPointKind::kFloat ||
         operand.can_fold(spec.scale);
}

bool Sm90ScalesWeights(const QuantSpec& spec, const Sm90Packing& packing, ElementType x_type) {
  return packing.is_folded || spec.zero_point == ZeroPointKind::kFloat ||
         (packing.is_relative && IsScaledExactly(spec.weight, spec.scale, x_type));
}

}  // namespace gemmd
