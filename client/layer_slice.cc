#include "client/layer_slice.h"

#include "absl/strings/str_cat.h"

namespace gemmd::client {
namespace {

void AppendAxis(const char* name, const v1::AxisSlice& slice, std::string* text) {
  if (slice.part_case() == v1::AxisSlice::PART_NOT_SET) return;
  absl::StrAppend(text, text->empty() ? "" : ", ", name, " ");
  if (slice.has_rank()) {
    absl::StrAppend(text, slice.rank().rank(), "/", slice.rank().size());
  } else {
    absl::StrAppend(text, slice.range().begin(), ":");
    if (slice.range().end() != 0) absl::StrAppend(text, slice.range().end());  // 0: that of the axis
  }
}

}  // namespace

v1::AxisSlice RankOf(uint32_t rank, uint32_t size) {
  v1::AxisSlice slice;
  slice.mutable_rank()->set_rank(rank);
  slice.mutable_rank()->set_size(size);
  return slice;
}

v1::AxisSlice RangeOf(int64_t begin, int64_t end) {
  v1::AxisSlice slice;
  slice.mutable_range()->set_begin(begin);
  slice.mutable_range()->set_end(end);
  return slice;
}

std::string SliceText(const v1::LayerSlice& slice) {
  std::string text;
  AppendAxis("rows", slice.rows(), &text);
  AppendAxis("columns", slice.columns(), &text);
  AppendAxis("experts", slice.experts(), &text);
  return text;
}

}  // namespace gemmd::client
