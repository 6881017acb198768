#include "core/quant/slice.h"

#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/quant/bit_row.h"
#include "core/quant/combine.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

absl::StatusOr<Range> Resolve(absl::string_view name, Range range, int64_t extent) {
  if (range.end == 0) range.end = extent;
  if (range.begin >= 0 && range.begin < range.end && range.end <= extent) return range;
  return Error(absl::StatusCode::kInvalidArgument, "SHAPE_MISMATCH",
               absl::StrCat(name, " ", range.begin, " to ", range.end,
                            ", expected a range that is not empty within 0 to ", extent));
}

absl::Status CheckCut(absl::string_view name, const Range& range, int64_t extent, int64_t unit) {
  const bool aligned = range.begin % unit == 0 && (range.end % unit == 0 || range.end == extent);
  if (aligned) return absl::OkStatus();
  return Error(
      absl::StatusCode::kInvalidArgument, "SLICE_CUTS_GROUP",
      absl::StrCat(name, " ", range.begin, " to ", range.end, " of ", extent,
                   " cut a group: legal are multiples of ", unit, " and the end of the layer"));
}

// A tensor [E, rows, columns] of elements of `element_bytes`, cut in all three.
Buffer Cut(const Buffer& from, int64_t all_rows, int64_t all_columns, int64_t element_bytes,
           const Range& experts, const Range& rows, const Range& columns) {
  Buffer out;
  if (from.empty()) return out;
  const int64_t row_bytes = (columns.end - columns.begin) * element_bytes;
  out.reserve((experts.end - experts.begin) * (rows.end - rows.begin) * row_bytes);
  for (int64_t expert = experts.begin; expert < experts.end; ++expert) {
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const auto first =
          from.begin() + ((expert * all_rows + row) * all_columns + columns.begin) * element_bytes;
      out.insert(out.end(), first, first + row_bytes);
    }
  }
  return out;
}

// Columns of one row of codes to a row of `out_bytes`.
void CutCodes(const std::byte* row, int64_t bits, const Range& columns, std::byte* out,
              int64_t out_bytes) {
  const int64_t count = columns.end - columns.begin;
  if (columns.begin * bits % 8 == 0 && count * bits % 8 == 0) {
    const int64_t used = count * bits / 8;
    std::memcpy(out, row + columns.begin * bits / 8, used);
    std::memset(out + used, 0, out_bytes - used);
    return;
  }
  std::vector<uint8_t> codes(columns.end);
  UnpackBitRow(row, static_cast<int>(bits), absl::MakeSpan(codes));
  PackBitRow(absl::MakeConstSpan(codes).subspan(columns.begin, count), static_cast<int>(bits), out);
}

Buffer CutAllCodes(const StandardTensor& whole, const LayerSlice& slice) {
  const int64_t old_bytes = whole.spec.RowWords(whole.shape.k) * 4;
  const int64_t new_bytes = whole.spec.RowWords(slice.columns.end - slice.columns.begin) * 4;
  const int64_t rows = slice.rows.end - slice.rows.begin;
  Buffer out = Buffer::Uninitialized((slice.experts.end - slice.experts.begin) * rows * new_bytes);
  std::byte* to = out.data();
  for (int64_t expert = slice.experts.begin; expert < slice.experts.end; ++expert) {
    for (int64_t row = slice.rows.begin; row < slice.rows.end; ++row, to += new_bytes) {
      CutCodes(whole.codes.data() + (expert * whole.shape.n + row) * old_bytes,
               whole.spec.weight.bits, slice.columns, to, new_bytes);
    }
  }
  return out;
}

// Scales and zero points of `whole`, whose blocks of rows the cut does not split.
void CutScales(const StandardTensor& whole, const LayerSlice& slice, StandardTensor& out) {
  const QuantSpec& spec = whole.spec;
  Range rows{0, 1};
  if (spec.scale_block_n > 0) {
    const int64_t block = spec.scale_block_n;
    rows = {slice.rows.begin / block, (slice.rows.end + block - 1) / block};
  }
  Range columns{0, whole.scale_columns};
  if (spec.scale_block_k > 0 && !spec.has_group_index) {
    const int64_t block = spec.scale_block_k;
    columns = {slice.columns.begin / block, (slice.columns.end + block - 1) / block};
  }
  out.scale_columns = columns.end - columns.begin;
  const int64_t all_rows = spec.ScaleRows(whole.shape.n);
  const int64_t zero_point_bytes = spec.zero_point == ZeroPointKind::kInteger ? 2 : 4;
  out.scales = Cut(whole.scales, all_rows, whole.scale_columns, spec.scale.bits / 8, slice.experts,
                   rows, columns);
  out.zero_points = Cut(whole.zero_points, all_rows, whole.scale_columns, zero_point_bytes,
                        slice.experts, rows, columns);
}

// Blocks of rows so that `begin` is between two of them.
int64_t RowBlock(const QuantSpec& spec, int64_t begin) {
  return spec.scale_block_n == 0 ? 0 : std::gcd(spec.scale_block_n, begin);
}

}  // namespace

int64_t ColumnUnit(const StandardTensor& whole) {
  const QuantSpec& spec = whole.spec;
  int64_t unit = 1;
  const bool has_groups = spec.scale_block_k > 0 && spec.scale_block_k < whole.shape.k;
  if (has_groups && !spec.has_group_index) unit = spec.scale_block_k;
  // Activations are quantized by groups of the whole row too.
  for (const int64_t group : {spec.activation_group, whole.encoding.group}) {
    if (group > 0) unit = std::lcm(unit, group);
  }
  return unit;
}

absl::StatusOr<StandardTensor> Slice(const StandardTensor& whole, const LayerSlice& slice) {
  LayerSlice part;
  const auto [experts, n, k] = whole.shape;
  GEMMD_ASSIGN_OR_RETURN(part.experts, Resolve("experts", slice.experts, experts));
  GEMMD_ASSIGN_OR_RETURN(part.rows, Resolve("rows", slice.rows, n));
  GEMMD_ASSIGN_OR_RETURN(part.columns, Resolve("columns", slice.columns, k));
  const QuantSpec& spec = whole.spec;
  if (whole.gate_up_interleaved) GEMMD_RETURN_IF_ERROR(CheckCut("rows", part.rows, n, 2));
  GEMMD_RETURN_IF_ERROR(CheckCut("columns", part.columns, k, ColumnUnit(whole)));
  StandardTensor out;
  out.spec = spec;
  out.shape = {part.experts.end - part.experts.begin, part.rows.end - part.rows.begin,
               part.columns.end - part.columns.begin};
  out.gate_up_interleaved = whole.gate_up_interleaved;
  out.codes = CutAllCodes(whole, part);
  const int64_t block = RowBlock(spec, part.rows.begin);
  if (block == spec.scale_block_n) {
    CutScales(whole, part, out);
  } else {
    StandardTensor split;  // only what CutScales reads
    split.spec = spec;
    split.shape = whole.shape;
    split.scale_columns = whole.scale_columns;
    split.scales = whole.scales;
    split.zero_points = whole.zero_points;
    SplitScaleRows(block, split);
    CutScales(split, part, out);
    out.spec.scale_block_n = block;
  }
  if (spec.secondary_scale == SecondaryScaleKind::kChannel) {
    out.secondary_scales =
        Cut(whole.secondary_scales, n, 1, sizeof(float), part.experts, part.rows, {0, 1});
  } else {
    out.secondary_scales =
        Cut(whole.secondary_scales, 1, 1, sizeof(float), part.experts, {0, 1}, {0, 1});
  }
  out.group_index =
      Cut(whole.group_index, 1, k, sizeof(int32_t), part.experts, {0, 1}, part.columns);
  out.activation_scale =
      Cut(whole.activation_scale, 1, 1, sizeof(float), part.experts, {0, 1}, {0, 1});
  out.has_input_scale = whole.has_input_scale;
  out.input_scale = Cut(whole.input_scale, 1, k, sizeof(float), part.experts, {0, 1}, part.columns);
  out.encoding = whole.encoding;
  out.activation_zero_point =
      Cut(whole.activation_zero_point, 1, 1, sizeof(int16_t), part.experts, {0, 1}, {0, 1});
  out.activation_global_scale =
      Cut(whole.activation_global_scale, 1, 1, sizeof(float), part.experts, {0, 1}, {0, 1});
  if (part.columns.begin == 0) {
    out.bias = Cut(whole.bias, n, 1, spec.bias.bits / 8, part.experts, part.rows, {0, 1});
  } else {
    out.spec.bias = kNoFormat;
  }
  return out;
}

}  // namespace gemmd
