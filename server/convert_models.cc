#include "server/convert_models.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "server/convert.h"
#include "server/convert_errors.h"

namespace gemmd {
namespace {

constexpr size_t kMaxModelPathBytes = 4096;
constexpr size_t kMaxPatternBytes = 1024;
constexpr size_t kMaxPrefixBytes = 128;
constexpr int kMaxPatterns = 64;

template <typename Texts>
absl::StatusOr<std::vector<std::string>> PatternsFrom(const Texts& from, const std::string& field) {
  if (from.size() > kMaxPatterns) {
    return OutOfRange(absl::StrCat("the number of ", field), from.size(),
                      absl::StrCat("at most ", kMaxPatterns));
  }
  for (const std::string& pattern : from) {
    GEMMD_RETURN_IF_ERROR(CheckLength(field, pattern, kMaxPatternBytes));
  }
  return std::vector<std::string>(from.begin(), from.end());
}

absl::Status SliceFrom(const v1::ModelSlice& from, ModelSelection& to) {
  if (from.has_tensor()) {
    v1::AxisSlice tensor;
    *tensor.mutable_rank() = from.tensor();
    GEMMD_ASSIGN_OR_RETURN(to.tensor, FromProto(tensor, "slice.tensor"));
  }
  GEMMD_ASSIGN_OR_RETURN(to.experts, FromProto(from.experts(), "slice.experts"));
  GEMMD_ASSIGN_OR_RETURN(to.row_modules, PatternsFrom(from.row_modules(), "slice.row_modules"));
  GEMMD_ASSIGN_OR_RETURN(to.column_modules,
                         PatternsFrom(from.column_modules(), "slice.column_modules"));
  return absl::OkStatus();
}

// The fields that messages about a model's modules share.
template <typename Message>
absl::StatusOr<ModelSelection> SelectionFromFields(const Message& from) {
  GEMMD_RETURN_IF_ERROR(CheckLength("path", from.path(), kMaxModelPathBytes));
  ModelSelection to;
  to.fuse = from.fuse();
  GEMMD_ASSIGN_OR_RETURN(to.modules, PatternsFrom(from.modules(), "modules"));
  GEMMD_ASSIGN_OR_RETURN(to.exclude, PatternsFrom(from.exclude(), "exclude"));
  GEMMD_RETURN_IF_ERROR(SliceFrom(from.slice(), to));
  return to;
}

template <typename Message>
absl::StatusOr<std::optional<QuantizeTarget>> TargetFromFields(const Message& from) {
  std::optional<QuantizeTarget> to;
  if (from.has_quantize()) {
    GEMMD_ASSIGN_OR_RETURN(to, FromProto(from.quantize(), "quantize"));
  }
  return to;
}

v1::AxisSlice AxisTo(const AxisSlice& from) {
  v1::AxisSlice to;
  if (from.size > 0) {
    to.mutable_rank()->set_rank(static_cast<uint32_t>(from.rank));
    to.mutable_rank()->set_size(static_cast<uint32_t>(from.size));
  } else {
    to.mutable_range()->set_begin(from.range.begin);
    to.mutable_range()->set_end(from.range.end);
  }
  return to;
}

v1::ModuleFailure FailureTo(const absl::Status& status) {
  v1::ModuleFailure to;
  to.set_code(static_cast<int>(status.code()));
  to.set_reason(ReasonOf(status));
  to.set_message(std::string(status.message()));
  return to;
}

void ProgressTo(const ModelProgress& from, v1::RegisterLayerProgress& to) {
  to = ToProto(LayerProgress{from.state, from.module_bytes_done, from.module_bytes_total});
  if (from.layer.has_value()) to.MergeFrom(ReadyToProto(*from.layer));
}

}  // namespace

absl::StatusOr<ModelModules> FromProto(const v1::ModelModules& from) {
  ModelModules to{.path = from.path(), .selection = {}};
  GEMMD_ASSIGN_OR_RETURN(to.selection, SelectionFromFields(from));
  GEMMD_ASSIGN_OR_RETURN(to.quantize, TargetFromFields(from));
  return to;
}

absl::StatusOr<ModelRequest> FromProto(const v1::RegisterModelRequest& from) {
  GEMMD_RETURN_IF_ERROR(CheckLength("name_prefix", from.name_prefix(), kMaxPrefixBytes));
  ModelRequest to;
  to.device = from.device();
  to.path = from.path();
  to.name_prefix = from.name_prefix();
  to.keep_going = from.keep_going();
  GEMMD_ASSIGN_OR_RETURN(to.selection, SelectionFromFields(from));
  GEMMD_ASSIGN_OR_RETURN(to.quantize, TargetFromFields(from));
  GEMMD_ASSIGN_OR_RETURN(to.gptq_zero_points, FromProto(from.gptq_zero_points(), "gptq_zero_points"));
  return to;
}

v1::LayerSlice ToProto(const SliceRequest& from) {
  v1::LayerSlice to;
  if (!from.rows.whole()) *to.mutable_rows() = AxisTo(from.rows);
  if (!from.columns.whole()) *to.mutable_columns() = AxisTo(from.columns);
  if (!from.experts.whole()) *to.mutable_experts() = AxisTo(from.experts);
  for (const RowPart& part : from.row_parts) {
    v1::RowPart* added = to.add_row_parts();
    added->set_rows(part.rows);
    added->set_replicas(static_cast<uint32_t>(part.replicas));
  }
  return to;
}

v1::RegisterModelProgress ToProto(const ModelProgress& from) {
  v1::RegisterModelProgress to;
  to.set_modules_done(static_cast<uint32_t>(from.modules_done));
  to.set_modules_total(static_cast<uint32_t>(from.modules_total));
  to.set_bytes_done(from.bytes_done);
  to.set_bytes_total(from.bytes_total);
  for (const std::string& pattern : from.unmatched_exclude) to.add_unmatched_exclude(pattern);
  for (const std::string& note : from.notes) to.add_notes(note);
  if (from.module.empty()) return to;
  v1::ModuleProgress& module = *to.mutable_module();
  module.set_module(from.module);
  *module.mutable_slice() = ToProto(from.slice);
  if (from.state == LayerState::kFailed) {
    *module.mutable_failure() = FailureTo(from.failure);
  } else {
    ProgressTo(from, *module.mutable_progress());
  }
  return to;
}

}  // namespace gemmd
