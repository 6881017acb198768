// What    The part of a layer that a rank of tensor or expert parallelism asks for, by rank or by
//         range, made into a slice of that layer.
// Shapes  rank r of s takes elements [r, r + 1) * extent / s of an axis. Rows of a fused layer are cut
//         part by part: rank r of qkv has its rows of q, of k and of v below each other.
// Errors  InvalidArgument SHAPE_MISMATCH for a part that is not there or an axis that s does not
//         divide, naming the numbers of ranks that do; SLICE_CUTS_GROUP for columns within a group.
// Threads Pure functions.
// Source  What a slice holds: core/quant/slice.h.
#ifndef GEMMD_CORE_QUANT_RANK_SLICE_H_
#define GEMMD_CORE_QUANT_RANK_SLICE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/quant/slice.h"

namespace gemmd {

// Part of one axis. The default is the whole of it.
struct AxisSlice {
  int64_t rank = 0;
  int64_t size = 0;  // ranks; 0 = `range` says the part
  Range range;

  bool whole() const {
    return size == 0 ? range.begin == 0 && range.end == 0 : size == 1 && rank == 0;
  }
};

// Rows of one part of a fused layer. With fewer parts than ranks (key and value heads), `replicas`
// ranks after each other hold the same rows.
struct RowPart {
  int64_t rows = 0;
  int64_t replicas = 1;
};

struct SliceRequest {
  AxisSlice experts;
  AxisSlice rows;
  AxisSlice columns;
  std::vector<RowPart> row_parts;  // for rows by rank; empty = one part

  bool whole() const { return experts.whole() && rows.whole() && columns.whole(); }
  // Equal for equal requests, and for those only.
  std::string Text() const;
};

// `slice` of an axis of `extent`. A rank's part must be a multiple of `unit`.
absl::StatusOr<Range> PartOf(absl::string_view axis, const AxisSlice& slice, int64_t extent,
                             int64_t unit = 1);

// The rows of one part for rank `rows` of a fused layer.
absl::StatusOr<Range> RowsOfPart(const AxisSlice& rows, const RowPart& part);

// Whether the ranks of `rows` divide each of `parts`; the error names the numbers of ranks that divide all of them. `rows`
// is by rank.
absl::Status CheckRowParts(const AxisSlice& rows, const std::vector<RowPart>& parts);

absl::StatusOr<StandardTensor> Slice(const StandardTensor& whole, const SliceRequest& request);

}  // namespace gemmd

#endif  // GEMMD_CORE_QUANT_RANK_SLICE_H_
