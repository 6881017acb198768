#include "client/gemmctl/reading_option.h"

#include <cstddef>
#include <iterator>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status.h"

namespace gemmd::gemmctl {
namespace {

constexpr char kName[] = "gptq-zero-points";

absl::StatusOr<std::optional<GptqZeroPoints>> RuleOf(const Arguments& arguments) {
  if (!arguments.Has(kName)) return std::nullopt;
  const std::string text = arguments.Text(kName);
  for (size_t i = 0; i < std::size(kGptqZeroPointsNames); ++i) {
    if (text == kGptqZeroPointsNames[i]) return static_cast<GptqZeroPoints>(i);
  }
  return BadArgument(absl::StrCat("--", kName, " '", text, "' is none of ", absl::StrJoin(kGptqZeroPointsNames, ", ")));
}

}  // namespace

Option GptqZeroPointsOption(const std::string& otherwise) {
  return {kName, 0, "RULE", "",
          absl::StrCat("how zero points of GPTQ version 1 that wrap are read: word (they carry into the next) or "
                       "field-masked (they do not); ",
                       otherwise)};
}

absl::StatusOr<v1::GptqZeroPoints> GptqZeroPointsOf(const Arguments& arguments) {
  GEMMD_ASSIGN_OR_RETURN(const std::optional<GptqZeroPoints> rule, RuleOf(arguments));
  if (!rule.has_value()) return v1::GPTQ_ZERO_POINTS_UNSPECIFIED;
  return *rule == GptqZeroPoints::kWord ? v1::GPTQ_ZERO_POINTS_WORD : v1::GPTQ_ZERO_POINTS_FIELD_MASKED;
}

absl::StatusOr<ReadingOptions> ReadingOptionsOf(const Arguments& arguments) {
  GEMMD_ASSIGN_OR_RETURN(const std::optional<GptqZeroPoints> rule, RuleOf(arguments));
  ReadingOptions options;
  options.gptq_zero_points = rule.value_or(options.gptq_zero_points);
  return options;
}

}  // namespace gemmd::gemmctl
