#include "core/quant/rank_slice.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/quant/combine.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

absl::Status SliceMismatch(absl::string_view message) {
  return Error(absl::StatusCode::kInvalidArgument, "SHAPE_MISMATCH", message);
}

bool Divides(int64_t size, int64_t extent, int64_t unit) {
  return extent % size == 0 && extent / size % unit == 0;
}

// "1, 2, 4": the numbers of ranks up to `most` that are legal.
std::string LegalSizes(int64_t most, const std::function<bool(int64_t)>& is_legal) {
  constexpr int64_t kMostRanks = 65536;
  constexpr size_t kMostNamed = 16;
  std::vector<int64_t> legal;
  for (int64_t size = 1; size <= std::min(most, kMostRanks); ++size) {
    if (!is_legal(size)) continue;
    if (legal.size() == kMostNamed) return absl::StrCat(absl::StrJoin(legal, ", "), " and more");
    legal.push_back(size);
  }
  return legal.empty() ? "none" : absl::StrJoin(legal, ", ");
}

// Those that cut `extent` into parts that are multiples of `unit`.
std::string LegalSizes(int64_t extent, int64_t unit) {
  return LegalSizes(extent, [=](int64_t size) { return size == 1 || Divides(size, extent, unit); });
}

bool Divides(int64_t size, const RowPart& part) {
  return size % part.replicas == 0 && part.rows % (size / part.replicas) == 0;
}

// An end of 0 is that of the axis: "128:".
std::string TextOf(const AxisSlice& slice) {
  if (slice.size > 0) return absl::StrCat(slice.rank, "/", slice.size);
  const std::string begin = absl::StrCat(slice.range.begin, ":");
  return slice.range.end == 0 ? begin : absl::StrCat(begin, slice.range.end);
}

// The range of whole groups that `slice` would have of an uneven split: as many as the others, the last ranks fewer.
std::string WholeGroups(const AxisSlice& slice, int64_t extent, int64_t unit) {
  const int64_t groups = (extent + unit - 1) / unit;
  const int64_t share = (groups + slice.size - 1) / slice.size * unit;
  const int64_t begin = slice.rank * share;
  if (begin >= extent) return "none, there are fewer groups than ranks";
  return absl::StrCat(begin, ":", std::min(extent, begin + share));
}

absl::Status CheckRank(absl::string_view axis, const AxisSlice& slice) {
  if (slice.rank >= 0 && slice.rank < slice.size) return absl::OkStatus();
  return SliceMismatch(absl::StrCat(axis, ": rank ", slice.rank, " of ", slice.size,
                                    " ranks, expected 0 to ", slice.size - 1));
}

absl::Status CheckReplicas(const AxisSlice& rows, const RowPart& part) {
  if (part.replicas >= 1 && rows.size % part.replicas == 0) return absl::OkStatus();
  return SliceMismatch(absl::StrCat("row_parts: ", part.replicas, " replicas, expected a divisor of the ",
                                    rows.size, " ranks"));
}

// Every part of a fused layer cut for the rank.
absl::StatusOr<StandardTensor> SliceParts(const StandardTensor& whole, const SliceRequest& request,
                                          LayerSlice slice) {
  if (whole.gate_up_interleaved) {
    return SliceMismatch("row_parts: gate and up rows alternate in this layer, it has one part");
  }
  int64_t sum = 0;
  for (const RowPart& part : request.row_parts) {
    if (part.rows < 1 || part.rows > whole.shape.n) {
      return SliceMismatch(
          absl::StrCat("row_parts: ", part.rows, " rows, expected 1 to ", whole.shape.n));
    }
    sum += part.rows;
  }
  if (sum != whole.shape.n) {
    return SliceMismatch(
        absl::StrCat("row_parts have ", sum, " rows together, the layer has ", whole.shape.n));
  }
  GEMMD_RETURN_IF_ERROR(CheckRowParts(request.rows, request.row_parts));
  std::vector<StandardTensor> cut;
  int64_t first = 0;
  for (const RowPart& part : request.row_parts) {
    GEMMD_ASSIGN_OR_RETURN(const Range rows, RowsOfPart(request.rows, part));
    slice.rows = {first + rows.begin, first + rows.end};
    GEMMD_ASSIGN_OR_RETURN(StandardTensor tensor, Slice(whole, slice));
    cut.push_back(std::move(tensor));
    first += part.rows;
  }
  return ConcatenateRows(std::move(cut));
}

}  // namespace

std::string SliceRequest::Text() const {
  if (whole()) return "";
  std::string text = absl::StrCat("experts ", TextOf(experts), ", rows ", TextOf(rows),
                                  ", columns ", TextOf(columns));
  for (const RowPart& part : row_parts) absl::StrAppend(&text, ", ", part.rows, "x", part.replicas);
  return text;
}

absl::StatusOr<Range> PartOf(absl::string_view axis, const AxisSlice& slice, int64_t extent,
                             int64_t unit) {
  if (slice.size == 0) {
    const Range range{slice.range.begin, slice.range.end == 0 ? extent : slice.range.end};
    if (range.begin >= 0 && range.begin < range.end && range.end <= extent) return range;
    return SliceMismatch(absl::StrCat(axis, " ", range.begin, " to ", range.end,
                                      ", expected a range that is not empty within 0 to ", extent));
  }
  GEMMD_RETURN_IF_ERROR(CheckRank(axis, slice));
  if (slice.size == 1) return Range{0, extent};
  const std::string legal = absl::StrCat("legal numbers of ranks are ", LegalSizes(extent, unit));
  if (extent % slice.size != 0) {
    return SliceMismatch(
        absl::StrCat(axis, ": ", slice.size, " ranks do not divide ", extent, ": ", legal));
  }
  const int64_t part = extent / slice.size;
  if (part % unit != 0) {
    return Error(absl::StatusCode::kInvalidArgument, "SLICE_CUTS_GROUP",
                 absl::StrCat(axis, ": ", slice.size, " ranks of ", part, " cut groups of ", unit,
                              ": ", legal, "; an explicit range may be of whole groups, near this rank's: ",
                              WholeGroups(slice, extent, unit)));
  }
  return Range{slice.rank * part, (slice.rank + 1) * part};
}

absl::StatusOr<Range> RowsOfPart(const AxisSlice& rows, const RowPart& part) {
  GEMMD_RETURN_IF_ERROR(CheckRank("rows", rows));
  GEMMD_RETURN_IF_ERROR(CheckReplicas(rows, part));
  const AxisSlice own{
      .rank = rows.rank / part.replicas, .size = rows.size / part.replicas, .range = {}};
  return PartOf("rows", own, part.rows);
}

absl::Status CheckRowParts(const AxisSlice& rows, const std::vector<RowPart>& parts) {
  int64_t most = rows.size;
  for (const RowPart& part : parts) {
    GEMMD_RETURN_IF_ERROR(CheckReplicas(rows, part));
    most = std::max(most, part.rows * part.replicas);
  }
  const auto bad = std::find_if(parts.begin(), parts.end(),
                                [&](const RowPart& part) { return !Divides(rows.size, part); });
  if (bad == parts.end()) return absl::OkStatus();
  const auto fits_all = [&](int64_t size) {
    return std::all_of(parts.begin(), parts.end(), [&](const RowPart& part) { return Divides(size, part); });
  };
  return SliceMismatch(absl::StrCat(
      "rows: ", rows.size, " ranks do not divide the ", bad->rows, " of part ", bad - parts.begin(),
      bad->replicas == 1 ? "" : absl::StrCat(" with ", bad->replicas, " replicas"),
      ": legal numbers of ranks", parts.size() == 1 ? "" : absl::StrCat(" for all ", parts.size(), " parts"), " are ",
      LegalSizes(most, fits_all)));
}

absl::StatusOr<StandardTensor> Slice(const StandardTensor& whole, const SliceRequest& request) {
  const auto [experts, n, k] = whole.shape;
  LayerSlice slice;
  GEMMD_ASSIGN_OR_RETURN(slice.experts, PartOf("experts", request.experts, experts));
  GEMMD_ASSIGN_OR_RETURN(slice.columns, PartOf("columns", request.columns, k, ColumnUnit(whole)));
  const bool by_rank = request.rows.size > 0;
  if (by_rank && !request.row_parts.empty()) return SliceParts(whole, request, slice);
  const int64_t row_unit = whole.gate_up_interleaved ? 2 : 1;
  GEMMD_ASSIGN_OR_RETURN(slice.rows, PartOf("rows", request.rows, n, row_unit));
  return Slice(whole, slice);
}

}  // namespace gemmd
