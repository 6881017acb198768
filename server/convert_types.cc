// Types that every service uses: number formats, QuantSpec, tensors.
#include <limits>

#include "absl/strings/str_cat.h"
#include "server/convert.h"
#include "server/convert_errors.h"

namespace gemmd {
namespace {

struct Element {
  NumberFormat type;
  bool is_signed_int;
};

absl::StatusOr<Element> ElementOf(v1::DataType type, const std::string& field) {
  switch (type) {
    case v1::DATA_TYPE_FLOAT32:
      return Element{kFloat32, false};
    case v1::DATA_TYPE_FLOAT16:
      return Element{kFloat16, false};
    case v1::DATA_TYPE_BFLOAT16:
      return Element{kBFloat16, false};
    case v1::DATA_TYPE_FLOAT8_E4M3:
      return Element{kFloat8E4M3, false};
    case v1::DATA_TYPE_FLOAT8_E5M2:
      return Element{kFloat8E5M2, false};
    case v1::DATA_TYPE_INT8:
      return Element{kInt8, true};
    case v1::DATA_TYPE_INT32:
      return Element{IntegerFormat(32), true};
    case v1::DATA_TYPE_FLOAT8_E8M0:
      return Element{kFloat8E8M0, false};
    case v1::DATA_TYPE_INT64:
      return Element{IntegerFormat(64), true};
    case v1::DATA_TYPE_UNSPECIFIED:
      return MissingField(field + ".dtype");
    default:
      return UnknownEnum(field + ".dtype", type);
  }
}

absl::StatusOr<SpecialValues> SpecialOf(const v1::NumberFormat& from, const std::string& field) {
  switch (from.special()) {
    case v1::SPECIAL_VALUES_UNSPECIFIED:
      return from.kind() == v1::NUMBER_KIND_EXPONENT ? SpecialValues::kNanOnly
                                                     : SpecialValues::kNone;
    case v1::SPECIAL_VALUES_NONE:
      return SpecialValues::kNone;
    case v1::SPECIAL_VALUES_NAN_ONLY:
      return SpecialValues::kNanOnly;
    case v1::SPECIAL_VALUES_IEEE:
      return SpecialValues::kIeee;
    default:
      return UnknownEnum(field + ".special", from.special());
  }
}

absl::StatusOr<NumberFormat> FloatFrom(const v1::NumberFormat& from, SpecialValues special,
                                       const std::string& field) {
  const uint64_t sum = uint64_t{1} + from.exponent_bits() + from.mantissa_bits();
  if (sum != from.bits()) {
    return OutOfRange(field + ".bits", from.bits(),
                      absl::StrCat("1 + exponent_bits + mantissa_bits = ", sum));
  }
  return FloatFormat(static_cast<int>(from.exponent_bits()), static_cast<int>(from.mantissa_bits()),
                     special);
}

absl::StatusOr<ZeroPointKind> ZeroPointOf(v1::ZeroPointKind kind) {
  switch (kind) {
    case v1::ZERO_POINT_KIND_UNSPECIFIED:
    case v1::ZERO_POINT_KIND_NONE:
      return ZeroPointKind::kNone;
    case v1::ZERO_POINT_KIND_INTEGER:
      return ZeroPointKind::kInteger;
    case v1::ZERO_POINT_KIND_FLOAT:
      return ZeroPointKind::kFloat;
    default:
      return UnknownEnum("spec.zero_point", kind);
  }
}

absl::StatusOr<SecondaryScaleKind> SecondaryOf(v1::SecondaryScaleKind kind) {
  switch (kind) {
    case v1::SECONDARY_SCALE_KIND_UNSPECIFIED:
    case v1::SECONDARY_SCALE_KIND_NONE:
      return SecondaryScaleKind::kNone;
    case v1::SECONDARY_SCALE_KIND_TENSOR:
      return SecondaryScaleKind::kTensor;
    case v1::SECONDARY_SCALE_KIND_CHANNEL:
      return SecondaryScaleKind::kChannel;
    default:
      return UnknownEnum("spec.secondary_scale", kind);
  }
}

absl::StatusOr<ActivationScaleKind> ActivationScaleOf(v1::ActivationScaleKind kind,
                                                      const std::string& field) {
  switch (kind) {
    case v1::ACTIVATION_SCALE_KIND_UNSPECIFIED:
    case v1::ACTIVATION_SCALE_KIND_NONE:
      return ActivationScaleKind::kNone;
    case v1::ACTIVATION_SCALE_KIND_STATIC_TENSOR:
      return ActivationScaleKind::kStaticTensor;
    case v1::ACTIVATION_SCALE_KIND_DYNAMIC_TOKEN:
      return ActivationScaleKind::kDynamicToken;
    case v1::ACTIVATION_SCALE_KIND_DYNAMIC_GROUP:
      return ActivationScaleKind::kDynamicGroup;
    default:
      return UnknownEnum(field, kind);
  }
}

absl::Status Extent(uint64_t from, const std::string& field, int64_t& to) {
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  if (from > kMax) return OutOfRange(field, from, absl::StrCat("at most ", kMax));
  to = static_cast<int64_t>(from);
  return absl::OkStatus();
}

absl::Status Optional(bool present, const v1::NumberFormat& from, const std::string& field,
                      NumberFormat& to) {
  if (!present) return absl::OkStatus();
  GEMMD_ASSIGN_OR_RETURN(to, FromProto(from, field));
  return absl::OkStatus();
}

v1::NumberKind ToProto(NumberKind kind) {
  switch (kind) {
    case NumberKind::kInteger:
      return v1::NUMBER_KIND_INTEGER;
    case NumberKind::kFloat:
      return v1::NUMBER_KIND_FLOAT;
    case NumberKind::kExponent:
      return v1::NUMBER_KIND_EXPONENT;
    case NumberKind::kNone:
      break;
  }
  return v1::NUMBER_KIND_UNSPECIFIED;
}

// The enums of core count from 0 in the order of the wire's, which count from 1.
template <typename Wire, typename Core>
Wire NextEnum(Core value) {
  return static_cast<Wire>(static_cast<int>(value) + 1);
}

}  // namespace

absl::StatusOr<NumberFormat> FromProto(const v1::NumberFormat& from, const std::string& field) {
  if (from.kind() == v1::NUMBER_KIND_UNSPECIFIED) return MissingField(field + ".kind");
  if (from.bits() < 1 || from.bits() > 32)
    return OutOfRange(field + ".bits", from.bits(), "in [1, 32]");
  GEMMD_ASSIGN_OR_RETURN(const SpecialValues special, SpecialOf(from, field));
  const auto bits = static_cast<uint8_t>(from.bits());
  switch (from.kind()) {
    case v1::NUMBER_KIND_INTEGER:
      return IntegerFormat(bits);
    case v1::NUMBER_KIND_FLOAT:
      return FloatFrom(from, special, field);
    case v1::NUMBER_KIND_EXPONENT:
      return NumberFormat{NumberKind::kExponent, bits, bits, 0, special};
    default:
      return UnknownEnum(field + ".kind", from.kind());
  }
}

absl::StatusOr<QuantSpec> FromProto(const v1::QuantSpec& from) {
  QuantSpec to;
  if (!from.has_weight()) return MissingField("spec.weight");
  GEMMD_ASSIGN_OR_RETURN(to.weight, FromProto(from.weight(), "spec.weight"));
  GEMMD_RETURN_IF_ERROR(Optional(from.has_scale(), from.scale(), "spec.scale", to.scale));
  GEMMD_RETURN_IF_ERROR(Optional(from.has_bias(), from.bias(), "spec.bias", to.bias));
  GEMMD_RETURN_IF_ERROR(
      Optional(from.has_activation(), from.activation(), "spec.activation", to.activation));
  GEMMD_RETURN_IF_ERROR(Extent(from.scale_block_n(), "spec.scale_block_n", to.scale_block_n));
  GEMMD_RETURN_IF_ERROR(Extent(from.scale_block_k(), "spec.scale_block_k", to.scale_block_k));
  GEMMD_RETURN_IF_ERROR(
      Extent(from.activation_group(), "spec.activation_group", to.activation_group));
  GEMMD_ASSIGN_OR_RETURN(to.zero_point, ZeroPointOf(from.zero_point()));
  GEMMD_ASSIGN_OR_RETURN(to.secondary_scale, SecondaryOf(from.secondary_scale()));
  GEMMD_ASSIGN_OR_RETURN(to.activation_scale,
                         ActivationScaleOf(from.activation_scale(), "spec.activation_scale"));
  to.has_group_index = from.has_group_index();
  return to;
}

absl::StatusOr<ActivationEncoding> FromProto(const v1::ActivationEncoding& from,
                                             const std::string& field) {
  ActivationEncoding to;
  if (!from.has_format()) return MissingField(field + ".format");
  GEMMD_ASSIGN_OR_RETURN(to.format, FromProto(from.format(), field + ".format"));
  GEMMD_RETURN_IF_ERROR(
      Optional(from.has_group_scale(), from.group_scale(), field + ".group_scale", to.group_scale));
  GEMMD_RETURN_IF_ERROR(Extent(from.group(), field + ".group", to.group));
  GEMMD_ASSIGN_OR_RETURN(to.scale, ActivationScaleOf(from.scale(), field + ".scale"));
  to.zero_points = from.zero_points();
  return to;
}

absl::StatusOr<TensorRef> FromProto(const v1::TensorRef& from, const std::string& field) {
  if (!from.has_region()) return MissingField(field + ".region");
  if (from.shape_size() < 1 || from.shape_size() > 2) {
    return ShapeMismatch(
        absl::StrCat(field, ".shape has ", from.shape_size(), " dimensions, not 1 or 2"));
  }
  TensorRef to;
  GEMMD_ASSIGN_OR_RETURN(const Element element, ElementOf(from.dtype(), field));
  to.region = FromProto(from.region());
  to.byte_offset = from.byte_offset();
  to.type = element.type;
  to.is_signed_int = element.is_signed_int;
  for (const int64_t extent : from.shape()) {
    if (extent < 0) return ShapeMismatch(absl::StrCat(field, ".shape holds ", extent, ", below 0"));
    to.shape.push_back(extent);
  }
  to.row_stride = from.row_stride();
  return to;
}

RegionRef FromProto(const v1::RegionRef& from) { return {from.id(), from.generation()}; }

v1::NumberFormat ToProto(const NumberFormat& from) {
  v1::NumberFormat to;
  to.set_kind(ToProto(from.kind));
  to.set_bits(from.bits);
  to.set_exponent_bits(from.exponent_bits);
  to.set_mantissa_bits(from.mantissa_bits);
  to.set_special(NextEnum<v1::SpecialValues>(from.special));
  return to;
}

v1::KernelNumerics ToProto(const KernelNumerics& from) {
  v1::KernelNumerics to;
  to.set_id(from.id);
  to.set_kernel(from.kernel);
  if (from.x.present()) *to.mutable_x() = ToProto(from.x);
  return to;
}

v1::QuantSpec ToProto(const QuantSpec& from) {
  v1::QuantSpec to;
  *to.mutable_weight() = ToProto(from.weight);
  if (from.scale.present()) *to.mutable_scale() = ToProto(from.scale);
  if (from.bias.present()) *to.mutable_bias() = ToProto(from.bias);
  if (from.activation.present()) *to.mutable_activation() = ToProto(from.activation);
  to.set_scale_block_n(static_cast<uint64_t>(from.scale_block_n));
  to.set_scale_block_k(static_cast<uint64_t>(from.scale_block_k));
  to.set_zero_point(NextEnum<v1::ZeroPointKind>(from.zero_point));
  to.set_secondary_scale(NextEnum<v1::SecondaryScaleKind>(from.secondary_scale));
  to.set_has_group_index(from.has_group_index);
  to.set_activation_scale(NextEnum<v1::ActivationScaleKind>(from.activation_scale));
  to.set_activation_group(static_cast<uint64_t>(from.activation_group));
  return to;
}

v1::ActivationEncoding ToProto(const ActivationEncoding& from) {
  v1::ActivationEncoding to;
  *to.mutable_format() = ToProto(from.format);
  to.set_scale(NextEnum<v1::ActivationScaleKind>(from.scale));
  to.set_group(static_cast<uint64_t>(from.group));
  to.set_zero_points(from.zero_points);
  if (from.group_scale.present()) *to.mutable_group_scale() = ToProto(from.group_scale);
  return to;
}

v1::RegionRef ToProto(const RegionRef& from) {
  v1::RegionRef to;
  to.set_id(from.id);
  to.set_generation(from.generation);
  return to;
}

}  // namespace gemmd
