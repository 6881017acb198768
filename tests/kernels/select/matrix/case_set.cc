#include "tests/kernels/select/matrix/case_set.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace gemmd::matrix {

absl::StatusOr<CaseSet> CaseSet::Parse(const std::string& text, size_t size) {
  CaseSet set(size);
  size_t next = 0;
  for (const std::string& part :
       std::vector<std::string>(absl::StrSplit(text, ',', absl::SkipEmpty()))) {
    const std::pair<std::string, std::string> ends = absl::StrSplit(part, absl::MaxSplits('-', 1));
    uint64_t first = 0;
    uint64_t last = 0;
    if (!absl::SimpleAtoi(ends.first, &first) ||
        !absl::SimpleAtoi(ends.second.empty() ? ends.first : ends.second, &last) || first < next ||
        last < first || last >= size) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", part, "' is no range of cases below ", size, " after ", next));
    }
    for (uint64_t i = first; i <= last; ++i) set.Add(i);
    next = last + 1;
  }
  return set;
}

std::string CaseSet::ToText() const {
  std::string text;
  for (size_t first = 0; first < has_.size(); ++first) {
    if (!has_[first]) continue;
    size_t last = first;
    while (last + 1 < has_.size() && has_[last + 1]) ++last;
    absl::StrAppend(&text, text.empty() ? "" : ",", first);
    if (last > first) absl::StrAppend(&text, "-", last);
    first = last;
  }
  return text;
}

size_t CaseSet::count() const {
  return static_cast<size_t>(std::count(has_.begin(), has_.end(), true));
}

CaseSet& CaseSet::operator|=(const CaseSet& other) {
  for (size_t i = 0; i < has_.size(); ++i) has_[i] = has_[i] || other.has_[i];
  return *this;
}

}  // namespace gemmd::matrix
