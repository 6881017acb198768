// Where a layer comes from: a part of a checkpoint's module, or tensors in regions.
#include <limits>

#include "absl/strings/str_cat.h"
#include "server/convert.h"
#include "server/convert_errors.h"

namespace gemmd {
namespace {

constexpr size_t kMaxPathBytes = 4096;
constexpr size_t kMaxModuleBytes = 1024;
constexpr int kMaxRowParts = 64;

absl::StatusOr<AxisSlice> RankFrom(const v1::Rank& from, const std::string& field) {
  if (from.size() < 1) return OutOfRange(field + ".rank.size", from.size(), "1 or more");
  if (from.rank() >= from.size()) {
    return OutOfRange(field + ".rank.rank", from.rank(), absl::StrCat("below size ", from.size()));
  }
  return AxisSlice{.rank = from.rank(), .size = from.size(), .range = {}};
}

absl::StatusOr<AxisSlice> RangeFrom(const v1::Range& from, const std::string& field) {
  if (from.begin() < 0) return OutOfRange(field + ".range.begin", from.begin(), "0 or more");
  if (from.end() != 0 && from.end() <= from.begin()) {
    return OutOfRange(field + ".range.end", from.end(),
                      absl::StrCat("0 or more than begin ", from.begin()));
  }
  return AxisSlice{.rank = 0, .size = 0, .range = {from.begin(), from.end()}};
}

absl::StatusOr<SliceRequest> SliceFrom(const v1::LayerSlice& from) {
  SliceRequest to;
  GEMMD_ASSIGN_OR_RETURN(to.rows, FromProto(from.rows(), "slice.rows"));
  GEMMD_ASSIGN_OR_RETURN(to.columns, FromProto(from.columns(), "slice.columns"));
  GEMMD_ASSIGN_OR_RETURN(to.experts, FromProto(from.experts(), "slice.experts"));
  if (from.row_parts_size() > kMaxRowParts) {
    return OutOfRange("the number of slice.row_parts", from.row_parts_size(),
                      absl::StrCat("at most ", kMaxRowParts));
  }
  if (from.row_parts_size() > 0 && to.rows.size == 0) {
    return MissingField("slice.rows.rank (row_parts say how it cuts)");
  }
  for (const v1::RowPart& part : from.row_parts()) {
    if (part.rows() < 1) return OutOfRange("slice.row_parts.rows", part.rows(), "1 or more");
    to.row_parts.push_back({part.rows(), part.replicas() == 0 ? 1 : part.replicas()});
  }
  return to;
}

absl::StatusOr<ScaleRule> RuleFrom(v1::ScaleRule from, const std::string& field) {
  switch (from) {
    case v1::SCALE_RULE_UNSPECIFIED:
    case v1::SCALE_RULE_LARGEST:
      return ScaleRule::kLargest;
    case v1::SCALE_RULE_FULL_RANGE:
      return ScaleRule::kFullRange;
    case v1::SCALE_RULE_OCP:
      return ScaleRule::kOcp;
    case v1::SCALE_RULE_NEAREST_POWER:
      return ScaleRule::kNearestPower;
    default:
      return UnknownEnum(field + ".rule", from);
  }
}

absl::Status RawFrom(bool present, const v1::RawRef& from, const char* field,
                     std::optional<RawRef>& to) {
  if (!present) return absl::OkStatus();
  if (!from.has_region()) return MissingField(absl::StrCat(field, ".region"));
  to = RawRef{FromProto(from.region()), from.byte_offset(), from.byte_size()};
  return absl::OkStatus();
}

absl::Status RawsFrom(const v1::TensorSource& from, TensorSource& to) {
#define GEMMD_RAW(name) \
  GEMMD_RETURN_IF_ERROR(RawFrom(from.has_##name(), from.name(), #name, to.name))
  GEMMD_RAW(codes);
  GEMMD_RAW(scales);
  GEMMD_RAW(zero_points);
  GEMMD_RAW(secondary_scales);
  GEMMD_RAW(group_index);
  GEMMD_RAW(bias);
  GEMMD_RAW(activation_scale);
  GEMMD_RAW(input_scale);
  GEMMD_RAW(activation_zero_point);
  GEMMD_RAW(activation_global_scale);
#undef GEMMD_RAW
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<AxisSlice> FromProto(const v1::AxisSlice& from, const std::string& field) {
  switch (from.part_case()) {
    case v1::AxisSlice::kRank:
      return RankFrom(from.rank(), field);
    case v1::AxisSlice::kRange:
      return RangeFrom(from.range(), field);
    case v1::AxisSlice::PART_NOT_SET:
      break;
  }
  return AxisSlice{};
}

absl::StatusOr<QuantizeTarget> FromProto(const v1::QuantizeTo& from, const std::string& field) {
  if (!from.has_spec()) return MissingField(field + ".spec");
  const absl::StatusOr<QuantSpec> spec = FromProto(from.spec());
  if (!spec.ok()) return Annotate(spec.status(), field);
  QuantizeTarget to{.spec = *spec};
  GEMMD_ASSIGN_OR_RETURN(to.rule, RuleFrom(from.rule(), field));
  if (from.has_encoding()) {
    GEMMD_ASSIGN_OR_RETURN(to.encoding, FromProto(from.encoding(), field + ".encoding"));
  }
  return to;
}

absl::StatusOr<std::optional<GptqZeroPoints>> FromProto(v1::GptqZeroPoints from, const std::string& field) {
  switch (from) {
    case v1::GPTQ_ZERO_POINTS_UNSPECIFIED:
      return std::nullopt;
    case v1::GPTQ_ZERO_POINTS_WORD:
      return GptqZeroPoints::kWord;
    case v1::GPTQ_ZERO_POINTS_FIELD_MASKED:
      return GptqZeroPoints::kFieldMasked;
    default:
      return UnknownEnum(field, from);
  }
}

absl::StatusOr<CheckpointSource> FromProto(const v1::CheckpointSource& from) {
  GEMMD_RETURN_IF_ERROR(CheckLength("checkpoint.path", from.path(), kMaxPathBytes));
  GEMMD_RETURN_IF_ERROR(CheckLength("checkpoint.module", from.module(), kMaxModuleBytes));
  CheckpointSource to{from.path(), from.module(), {}};
  GEMMD_ASSIGN_OR_RETURN(to.slice, SliceFrom(from.slice()));
  if (from.has_quantize()) {
    GEMMD_ASSIGN_OR_RETURN(to.quantize, FromProto(from.quantize(), "checkpoint.quantize"));
  }
  GEMMD_ASSIGN_OR_RETURN(to.gptq_zero_points,
                         FromProto(from.gptq_zero_points(), "checkpoint.gptq_zero_points"));
  return to;
}

absl::StatusOr<TensorSource> FromProto(const v1::TensorSource& from) {
  TensorSource to;
  if (!from.has_spec()) return MissingField("tensors.spec");
  GEMMD_ASSIGN_OR_RETURN(to.spec, FromProto(from.spec()));
  if (from.has_encoding()) {
    GEMMD_ASSIGN_OR_RETURN(to.encoding, FromProto(from.encoding(), "tensors.encoding"));
  }
  if (from.experts() < 0) return OutOfRange("tensors.experts", from.experts(), "0 or more");
  if (from.n() < 1) return OutOfRange("tensors.n", from.n(), "1 or more");
  if (from.k() < 1) return OutOfRange("tensors.k", from.k(), "1 or more");
  to.shape = {from.experts() == 0 ? 1 : from.experts(), from.n(), from.k()};
  if (from.has_quantize()) {
    GEMMD_ASSIGN_OR_RETURN(to.quantize, FromProto(from.quantize(), "tensors.quantize"));
  }
  GEMMD_RETURN_IF_ERROR(RawsFrom(from, to));
  return to;
}

}  // namespace gemmd
