#include "core/quant/standard_tensor.h"

#include <cstring>
#include <initializer_list>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

absl::Status BadSpec(absl::string_view message) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_SPEC", message);
}

absl::Status ShapeMismatch(absl::string_view message) {
  return Error(absl::StatusCode::kInvalidArgument, "SHAPE_MISMATCH", message);
}

const char* SpecialText(SpecialValues special) {
  switch (special) {
    case SpecialValues::kNone:
      return "finite numbers only";
    case SpecialValues::kNanOnly:
      return "NaN";
    case SpecialValues::kIeee:
      return "infinities and NaN";
  }
  return "unknown special values";
}

// "(float of 8 bits, 5 of exponent, 2 of mantissa, with infinities and NaN)".
std::string Describe(const NumberFormat& format) {
  switch (format.kind) {
    case NumberKind::kNone:
      return "(none)";
    case NumberKind::kInteger:
      return absl::StrCat("(integer of ", format.bits, " bits)");
    case NumberKind::kExponent:
      return absl::StrCat("(power of two of ", format.bits, " bits, with ", SpecialText(format.special), ")");
    case NumberKind::kFloat:
      break;
  }
  return absl::StrCat("(float of ", format.bits, " bits, ", format.exponent_bits, " of exponent, ",
                      format.mantissa_bits, " of mantissa, with ", SpecialText(format.special), ")");
}

bool IsWideFloat(const NumberFormat& format) {
  return format == kFloat32 || format == kFloat16 || format == kBFloat16;
}

// A signed float of 2 to 8 bits, sign and magnitude when it has no exponent.
bool IsSmallFloat(const NumberFormat& format) {
  if (format.kind != NumberKind::kFloat || format.bits < 2 || format.bits > 8) return false;
  if (format.bits != 1 + format.exponent_bits + format.mantissa_bits) return false;
  // IEEE specials need a mantissa bit to tell NaN from infinity and an exponent besides the
  // all-ones one.
  if (format.special == SpecialValues::kIeee) {
    return format.exponent_bits >= 2 && format.mantissa_bits >= 1;
  }
  return format.special == SpecialValues::kNone || format.special == SpecialValues::kNanOnly;
}

bool IsInteger(const NumberFormat& format) {
  return format.kind == NumberKind::kInteger && format.bits >= 1 && format.bits <= 8 &&
         format == IntegerFormat(format.bits);
}

bool IsScale(const NumberFormat& format) {
  return IsWideFloat(format) || format == kFloat8E4M3 || format == kFloat8E5M2 ||
         format == kFloat8E8M0;
}

absl::Status ValidateActivation(const QuantSpec& spec) {
  const NumberFormat& format = spec.activation;
  GEMMD_RETURN_IF_ERROR(CheckHoldsNumbers("activation", format));
  if (format.present() && !IsInteger(format) && !IsSmallFloat(format) && !IsWideFloat(format)) {
    return BadSpec(absl::StrCat("activation ", Describe(format), " is not a known number format"));
  }
  const ActivationScaleKind kind = spec.activation_scale;
  if (kind > ActivationScaleKind::kDynamicGroup) return BadSpec("activation_scale is unknown");
  if (kind != ActivationScaleKind::kNone && !format.present()) {
    return BadSpec("activation_scale needs an activation format");
  }
  if ((kind == ActivationScaleKind::kDynamicGroup) != (spec.activation_group > 0)) {
    return BadSpec(absl::StrCat("activation_group ", spec.activation_group,
                                " must be positive with dynamic groups and 0 without"));
  }
  return absl::OkStatus();
}

absl::Status ValidateSpec(const QuantSpec& spec) {
  const NumberFormat& weight = spec.weight;
  if (!IsInteger(weight) && !IsSmallFloat(weight) && !IsWideFloat(weight)) {
    return BadSpec(absl::StrCat("weight ", Describe(weight),
                                " is neither an integer of 1 to 8 bits nor a known float"));
  }
  if (spec.scale.present() && !IsScale(spec.scale)) {
    return BadSpec(absl::StrCat("scale ", Describe(spec.scale),
                                " is none of f16, bf16, f32, e4m3, e5m2, e8m0"));
  }
  if (spec.scale_block_n < 0 || spec.scale_block_k < 0) {
    return BadSpec(absl::StrCat("scale_block ", spec.scale_block_n, "x", spec.scale_block_k,
                                " must not be negative"));
  }
  if (spec.zero_point > ZeroPointKind::kFloat) return BadSpec("zero_point is unknown");
  if (spec.zero_point != ZeroPointKind::kNone && weight.kind != NumberKind::kInteger) {
    return BadSpec("zero_point needs integer weights");
  }
  if (spec.secondary_scale > SecondaryScaleKind::kChannel) {
    return BadSpec("secondary_scale is unknown");
  }
  if (spec.bias.present() && !IsWideFloat(spec.bias)) {
    return BadSpec(absl::StrCat("bias ", Describe(spec.bias), " is none of f16, bf16, f32"));
  }
  return ValidateActivation(spec);
}

// An encoding either adds the type of the group scales to what the spec says, or stands alone because
// of its zero points, which a reader of the spec must not overlook.
absl::Status ValidateEncoding(const StandardTensor& tensor) {
  const ActivationEncoding& encoding = tensor.encoding;
  const QuantSpec& spec = tensor.spec;
  if (!encoding.present()) {
    const bool empty = encoding == ActivationEncoding();
    return empty ? absl::OkStatus() : BadSpec("the activation encoding has no format");
  }
  if (encoding.zero_points) {
    if (spec.activation.present()) {
      return BadSpec("activations with zero points belong into the encoding alone");
    }
    if (!IsInteger(encoding.format)) return BadSpec("zero points of activations need integers");
    if (encoding.group_scale.present()) {
      return BadSpec("activations with zero points have float32 scales");
    }
    QuantSpec alone;
    alone.activation = encoding.format;
    alone.activation_scale = encoding.scale;
    alone.activation_group = encoding.group;
    if (encoding.scale == ActivationScaleKind::kNone) {
      return BadSpec("zero points of activations need a scale");
    }
    return ValidateActivation(alone);
  }
  if (!(encoding.format == spec.activation) || encoding.scale != spec.activation_scale ||
      encoding.group != spec.activation_group) {
    return BadSpec("the activation encoding contradicts the spec's activation");
  }
  const NumberFormat& scale = encoding.group_scale;
  if (encoding.scale == ActivationScaleKind::kDynamicGroup &&
      (scale == kFloat8E8M0 || scale == kFloat8E4M3)) {
    return absl::OkStatus();
  }
  return BadSpec(absl::StrCat("group_scale ", Describe(scale),
                              " is none of e8m0, e4m3, or the activations have no dynamic groups"));
}

// Product of non-negative extents, or -1 when it does not fit.
int64_t Product(std::initializer_list<int64_t> extents) {
  int64_t product = 1;
  for (const int64_t extent : extents) {
    if (__builtin_mul_overflow(product, extent, &product)) return -1;
  }
  return product;
}

// `tensor` has a valid spec and shape.
std::vector<TensorSize> SizesOf(const StandardTensor& tensor) {
  const QuantSpec& spec = tensor.spec;
  const auto [experts, n, k] = tensor.shape;
  const int64_t rows = spec.ScaleRows(n);
  const int64_t columns = tensor.scale_columns;
  const auto bytes = [](const NumberFormat& format) -> int64_t { return format.bits / 8; };
  const bool has_zero_points = spec.zero_point != ZeroPointKind::kNone;
  const int64_t zero_point_bytes = spec.zero_point == ZeroPointKind::kInteger ? 2 : 4;
  const ActivationEncoding& encoding = tensor.encoding;
  const bool static_encoding = encoding.scale == ActivationScaleKind::kStaticTensor;
  const bool static_activation =
      static_encoding || spec.activation_scale == ActivationScaleKind::kStaticTensor;
  const bool global_scale = encoding.group_scale == kFloat8E4M3;
  const int64_t secondary_columns = spec.secondary_scale == SecondaryScaleKind::kNone     ? 0
                                    : spec.secondary_scale == SecondaryScaleKind::kTensor ? 1
                                                                                          : n;
  using T = StandardTensor;
  return {{"codes", &T::codes, Product({experts, n, spec.RowWords(k), 4})},
          {"scales", &T::scales, Product({experts, rows, columns, bytes(spec.scale)})},
          {"zero_points", &T::zero_points,
           Product({has_zero_points, experts, rows, columns, zero_point_bytes})},
          {"secondary_scales", &T::secondary_scales, Product({experts, secondary_columns, 4})},
          {"group_index", &T::group_index, Product({spec.has_group_index, experts, k, 4})},
          {"bias", &T::bias, Product({experts, n, bytes(spec.bias)})},
          {"activation_scale", &T::activation_scale, Product({static_activation, experts, 4})},
          {"input_scale", &T::input_scale, Product({tensor.has_input_scale, experts, k, 4})},
          {"activation_zero_point", &T::activation_zero_point,
           Product({encoding.zero_points && static_encoding, experts, 2})},
          {"activation_global_scale", &T::activation_global_scale,
           Product({global_scale, experts, 4})}};
}

absl::Status ValidateSizes(const StandardTensor& tensor) {
  for (const TensorSize& size : SizesOf(tensor)) {
    GEMMD_RETURN_IF_ERROR(size.Check((tensor.*size.buffer).size()));
  }
  return absl::OkStatus();
}

absl::Status ValidateShape(const StandardTensor& tensor) {
  constexpr int64_t kLargestExtent = int64_t{1} << 40;  // row bits stay below 2^63
  const auto [experts, n, k] = tensor.shape;
  for (const auto& [name, extent] : {std::pair("experts", experts), {"n", n}, {"k", k}}) {
    if (extent < 1 || extent > kLargestExtent) {
      return ShapeMismatch(absl::StrCat(name, " is ", extent, ", expected 1 to 2^40"));
    }
  }
  if (tensor.scale_columns < 1) {
    return ShapeMismatch(
        absl::StrCat("scale_columns is ", tensor.scale_columns, ", expected 1 or more"));
  }
  const int64_t columns = tensor.spec.ScaleColumns(k);
  if (!tensor.spec.has_group_index && tensor.scale_columns != columns) {
    return ShapeMismatch(absl::StrCat("scale_columns is ", tensor.scale_columns, ", expected ",
                                      columns, " for k ", k, " in groups of ",
                                      tensor.spec.scale_block_k));
  }
  return absl::OkStatus();
}

absl::Status ValidateGroupIndex(const StandardTensor& tensor) {
  for (size_t i = 0; i < tensor.group_index.size() / sizeof(int32_t); ++i) {
    int32_t group;
    std::memcpy(&group, tensor.group_index.data() + i * sizeof(group), sizeof(group));
    if (group < 0 || group >= tensor.scale_columns) {
      return BadSpec(absl::StrCat("group_index[", i, "] is ", group, ", expected 0 to ",
                                  tensor.scale_columns - 1));
    }
  }
  return absl::OkStatus();
}

// 2^bits itself is allowed: some writers of zero points stored minus one produce it.
absl::Status ValidateZeroPoints(const StandardTensor& tensor) {
  if (tensor.spec.zero_point != ZeroPointKind::kInteger) return absl::OkStatus();
  const int largest = 1 << tensor.spec.weight.bits;
  for (size_t i = 0; i < tensor.zero_points.size() / sizeof(int16_t); ++i) {
    int16_t zero_point;
    std::memcpy(&zero_point, tensor.zero_points.data() + i * sizeof(zero_point),
                sizeof(zero_point));
    if (zero_point < 0 || zero_point > largest) {
      return BadSpec(
          absl::StrCat("zero_points[", i, "] is ", zero_point, ", expected 0 to ", largest));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateSpareBits(const StandardTensor& tensor) {
  const int64_t words = tensor.spec.RowWords(tensor.shape.k);
  const int used = static_cast<int>(tensor.shape.k * tensor.spec.weight.bits % 32);
  if (used == 0) return absl::OkStatus();
  for (int64_t row = 0; row < tensor.shape.experts * tensor.shape.n; ++row) {
    uint32_t last;
    std::memcpy(&last, tensor.codes.data() + ((row + 1) * words - 1) * sizeof(last), sizeof(last));
    if (last >> used != 0) {
      return BadSpec(
          absl::StrCat("codes: the bits after the last code of row ", row, " are not 0"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

int64_t StandardTensor::total_bytes() const {
  size_t total = 0;
  for (const Buffer* buffer :
       {&codes, &scales, &zero_points, &secondary_scales, &group_index, &bias, &activation_scale,
        &input_scale, &activation_zero_point, &activation_global_scale}) {
    total += buffer->size();
  }
  return static_cast<int64_t>(total);
}

absl::Status TensorSize::Check(uint64_t got) const {
  if (bytes >= 0 && static_cast<uint64_t>(bytes) == got) return absl::OkStatus();
  return ShapeMismatch(absl::StrCat(name, " has ", got, " bytes, expected ",
                                    bytes < 0 ? "more than 2^63" : absl::StrCat(bytes)));
}

absl::StatusOr<std::vector<TensorSize>> TensorSizes(const StandardTensor& tensor) {
  GEMMD_RETURN_IF_ERROR(ValidateSpec(tensor.spec));
  GEMMD_RETURN_IF_ERROR(ValidateEncoding(tensor));
  GEMMD_RETURN_IF_ERROR(ValidateShape(tensor));
  return SizesOf(tensor);
}

absl::Status Validate(const QuantSpec& spec) { return ValidateSpec(spec); }

absl::Status CheckHoldsNumbers(absl::string_view what, const NumberFormat& format) {
  const bool zero_and_nan =
      format.kind == NumberKind::kFloat && format.bits == 2 && format.special == SpecialValues::kNanOnly;
  if (!zero_and_nan) return absl::OkStatus();
  return BadSpec(absl::StrCat(what, " ", Describe(format), " has no finite number but 0"));
}

absl::Status Validate(const StandardTensor& tensor) {
  GEMMD_RETURN_IF_ERROR(ValidateSpec(tensor.spec));
  GEMMD_RETURN_IF_ERROR(ValidateEncoding(tensor));
  GEMMD_RETURN_IF_ERROR(ValidateShape(tensor));
  GEMMD_RETURN_IF_ERROR(ValidateSizes(tensor));
  GEMMD_RETURN_IF_ERROR(ValidateGroupIndex(tensor));
  GEMMD_RETURN_IF_ERROR(ValidateZeroPoints(tensor));
  return ValidateSpareBits(tensor);
}
}  // namespace gemmd
