#include "client/gemmctl/slice_options.h"

#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/layer_slice.h"
#include "kernels/base/status.h"

namespace gemmd::gemmctl {
namespace {

using Words = std::vector<std::string>;

// "1/4" or "128:256"; an empty side of ':' is that end of the axis.
absl::StatusOr<v1::AxisSlice> AxisOf(const std::string& option, const std::string& text) {
  uint32_t rank = 0;
  uint32_t size = 0;
  const Words ranks = absl::StrSplit(text, '/');
  if (ranks.size() == 2 && absl::SimpleAtoi(ranks[0], &rank) && absl::SimpleAtoi(ranks[1], &size)) {
    GEMMD_RETURN_IF_ERROR(CheckRank(option, text, rank, size));
    return client::RankOf(rank, size);
  }
  const Words ends = absl::StrSplit(text, ':');
  const auto read = [](const std::string& end, int64_t* value) {
    *value = 0;
    return end.empty() || absl::SimpleAtoi(end, value);
  };
  int64_t begin = 0;
  int64_t end = 0;
  if (ends.size() == 2 && read(ends[0], &begin) && read(ends[1], &end)) {
    if (begin < 0 || end < 0) {
      return BadArgument(
          absl::StrCat("--", option, " '", text, "' is negative; an axis begins at 0"));
    }
    // An end of 0 is the axis's end on the wire; written out it is an empty range.
    if (!ends[1].empty() && end <= begin) {
      return BadArgument(absl::StrCat("--", option, " '", text, "' is an empty range; '", begin,
                                      ":' goes to the end of the axis"));
    }
    return client::RangeOf(begin, end);
  }
  return BadArgument(absl::StrCat("--", option, " '", text,
                                  "' is neither RANK/SIZE, such as 0/4, nor BEGIN:END, such as "
                                  "0:1024"));
}

// "4096" or "1024x2".
absl::StatusOr<v1::RowPart> RowPartOf(const std::string& text) {
  const Words numbers = absl::StrSplit(text, 'x');
  int64_t rows = 0;
  uint32_t replicas = 1;
  if (numbers.size() > 2 || !absl::SimpleAtoi(numbers[0], &rows) ||
      (numbers.size() == 2 && !absl::SimpleAtoi(numbers[1], &replicas))) {
    return BadArgument(
        absl::StrCat("--row-parts '", text, "' is neither ROWS nor ROWSxREPLICAS, such as 1024x2"));
  }
  if (rows < 1 || replicas < 1) {
    return BadArgument(
        absl::StrCat("--row-parts '", text, "': expected at least one row and one replica"));
  }
  v1::RowPart part;
  part.set_rows(rows);
  part.set_replicas(replicas);
  return part;
}

}  // namespace

absl::Status CheckRank(const std::string& option, const std::string& text, uint32_t rank,
                       uint32_t size) {
  if (rank < size) return absl::OkStatus();
  return BadArgument(absl::StrCat("--", option, " '", text, "': there is no rank ", rank, " of ",
                                  size, ", expected 0 to one less than SIZE"));
}

std::vector<Option> SliceOptions() {
  return {{"rows", 0, "PART", "", "of N: RANK/SIZE (0/4) or BEGIN:END (0:1024; 1024: to the end)"},
          {"columns", 0, "PART", "", "of K, the same way; not within a group"},
          {"experts", 0, "PART", "", "of E, the same way"},
          {"row-parts", 0, "LIST", "",
           "with --rows RANK/SIZE: rows of each part of a fused module, as in 4096,1024x2,1024x2; "
           "xR: R ranks after each other hold the same rows"}};
}

absl::StatusOr<v1::LayerSlice> SliceOf(const Arguments& arguments) {
  v1::LayerSlice slice;
  const std::pair<const char*, v1::AxisSlice* (v1::LayerSlice::*)()> axes[] = {
      {"rows", &v1::LayerSlice::mutable_rows},
      {"columns", &v1::LayerSlice::mutable_columns},
      {"experts", &v1::LayerSlice::mutable_experts}};
  for (const auto& [option, axis] : axes) {
    if (!arguments.Has(option)) continue;
    const std::string text = arguments.Text(option);
    GEMMD_ASSIGN_OR_RETURN(*(slice.*axis)(), AxisOf(option, text));
  }
  if (!arguments.Has("row-parts")) return slice;
  if (!slice.rows().has_rank()) return BadArgument("--row-parts needs --rows RANK/SIZE");
  const std::string parts = arguments.Text("row-parts");
  for (const std::string& part : Words(absl::StrSplit(parts, ','))) {
    GEMMD_ASSIGN_OR_RETURN(*slice.add_row_parts(), RowPartOf(part));
  }
  return slice;
}

}  // namespace gemmd::gemmctl
