#include "core/checkpoint/other_content.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace gemmd {

std::string OtherContent(absl::string_view start) {
  if (absl::StartsWith(start, "version https://git-lfs")) {
    return "a Git LFS pointer, not the file that it stands for: run \"git lfs pull\"";
  }
  absl::ConsumePrefix(&start, "\xef\xbb\xbf");
  if (absl::StartsWith(absl::StripLeadingAsciiWhitespace(start), "<")) {
    return "an HTML or XML page, not the file that was to be downloaded: download it again";
  }
  return "";
}

}  // namespace gemmd
