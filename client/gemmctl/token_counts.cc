#include "client/gemmctl/token_counts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/base/status.h"

namespace gemmd::gemmctl {
namespace {

// False where it is neither a number nor a range.
bool ParseRange(absl::string_view part, TokenRange& range) {
  const std::vector<absl::string_view> ends = absl::StrSplit(part, absl::MaxSplits('-', 1));
  return absl::SimpleAtoi(ends.front(), &range.first) && absl::SimpleAtoi(ends.back(), &range.last);
}

std::vector<TokenRange> Merged(std::vector<TokenRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const TokenRange& a, const TokenRange& b) {
    return std::pair(a.first, a.last) < std::pair(b.first, b.last);
  });
  std::vector<TokenRange> merged;
  for (const TokenRange& range : ranges) {
    if (!merged.empty() && range.first <= merged.back().last + 1) {
      merged.back().last = std::max(merged.back().last, range.last);
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

}  // namespace

absl::StatusOr<std::vector<TokenRange>> TokenRanges(const Arguments& arguments, const std::string& option,
                                                    const TokenBounds& bounds) {
  std::vector<TokenRange> ranges;
  for (const absl::string_view part : absl::StrSplit(arguments.Text(option), ',')) {
    TokenRange range;
    if (!ParseRange(part, range)) {
      return BadArgument(absl::StrCat("--", option, " has '", part,
                                      "', expected a number such as 16 or a range such as 1-64"));
    }
    if (range.first < bounds.least || range.last > bounds.most || range.last < range.first) {
      return BadArgument(absl::StrCat("--", option, " has '", part, "', expected numbers from ", bounds.least,
                                      " to ", bounds.most, ", the smaller one first"));
    }
    ranges.push_back(range);
  }
  return Merged(std::move(ranges));
}

absl::StatusOr<std::vector<int64_t>> TokenCounts(const Arguments& arguments, const std::string& option,
                                                 const TokenBounds& bounds) {
  GEMMD_ASSIGN_OR_RETURN(const std::vector<TokenRange> ranges, TokenRanges(arguments, option, bounds));
  std::vector<int64_t> counts;
  for (const TokenRange& range : ranges) {
    const int64_t room = bounds.most_counts - static_cast<int64_t>(counts.size());
    if (range.last - range.first >= room) {
      return BadArgument(absl::StrCat("--", option, " '", arguments.Text(option), "' has more than ",
                                      bounds.most_counts, " numbers of tokens"));
    }
    for (int64_t m = range.first; m <= range.last; ++m) counts.push_back(m);
  }
  return counts;
}

}  // namespace gemmd::gemmctl
