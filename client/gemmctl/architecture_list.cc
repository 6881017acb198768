#include "client/gemmctl/architecture_list.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/gemmctl/arguments.h"

namespace gemmd::gemmctl {

absl::StatusOr<std::vector<std::string>> ArchitectureNames(const std::string& list) {
  std::vector<std::string> names;
  for (const absl::string_view name : absl::StrSplit(list, ',')) {
    if (name.empty()) return BadArgument(absl::StrCat("--arch '", list, "' has an empty name"));
    names.emplace_back(name);
  }
  return names;
}

}  // namespace gemmd::gemmctl
