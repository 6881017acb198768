#include "core/checkpoint/compressed_version.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/json.h"

namespace gemmd {
namespace {

// Takes the digits at the front of `text`, at most nine.
bool ConsumeVersionNumber(absl::string_view& text, int& number) {
  const auto end = std::find_if_not(text.begin(), text.end(), [](unsigned char c) { return absl::ascii_isdigit(c); });
  const auto digits = static_cast<size_t>(end - text.begin());
  if (digits > 9 || !absl::SimpleAtoi(text.substr(0, digits), &number)) return false;
  text.remove_prefix(digits);
  return true;
}

// What follows the numbers of a build: "a20260225", ".dev0", "-rc.1".
bool IsBuildSuffix(absl::string_view text) {
  if (text[0] == '.' || text[0] == '-' || text[0] == '_') text.remove_prefix(1);
  return !text.empty() && absl::ascii_isalpha(static_cast<unsigned char>(text[0]));
}

}  // namespace

CompressedVersion::CompressedVersion(absl::string_view text) : text_(text) {
  text = text.substr(0, text.find('+'));  // where it was built
  if (!ConsumeVersionNumber(text, major_) || !absl::ConsumePrefix(&text, ".") || !ConsumeVersionNumber(text, minor_)) return;
  absl::string_view third = text;
  if (absl::ConsumePrefix(&third, ".") && ConsumeVersionNumber(third, patch_)) text = third;
  is_release_ = text.empty();
  known_ = is_release_ || IsBuildSuffix(text);
}

std::optional<bool> CompressedVersion::IsSince(int minor) const {
  if (!known_) return std::nullopt;
  const auto own = std::tuple(major_, minor_, patch_);
  const auto change = std::tuple(0, minor, 0);
  const bool is_after = absl::StrContains(text_, "post");  // the release of its number, others are before it
  if (is_release_ || own > change || (is_after && own == change)) return own >= change;
  // Builds after the last release before the change may have it.
  if (own >= std::tuple(0, minor - 1, is_after ? 0 : 1)) return std::nullopt;
  return false;
}

absl::Status CompressedVersion::CannotTell(int minor, absl::string_view what) const {
  const std::string got = text_.empty() ? "none" : Shown(text_);
  return BadCheckpoint(absl::StrCat(
      "\"version\": expected a release of compressed-tensors, got ", got, ": 0.", minor, ".0 changed ", what,
      ", and nothing else tells whether the file is older. Write 0.", minor - 1, ".0 or 0.", minor,
      ".0 here, as the library stored it, or save the checkpoint with a release"));
}

}  // namespace gemmd
