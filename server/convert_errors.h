// What    The errors that conversion can find, each with its reason.
#ifndef GEMMD_SERVER_CONVERT_ERRORS_H_
#define GEMMD_SERVER_CONVERT_ERRORS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/base/status.h"

namespace gemmd {

inline absl::Status MissingField(absl::string_view field) {
  return Error(absl::StatusCode::kInvalidArgument, "MISSING_FIELD",
               absl::StrCat(field, " is not set"));
}
inline absl::Status UnknownEnum(absl::string_view field, int value) {
  return Error(absl::StatusCode::kInvalidArgument, "UNKNOWN_ENUM",
               absl::StrCat(field, ": ", value, " is no value of this enum"));
}
template <typename Value>
absl::Status OutOfRange(absl::string_view field, Value value, absl::string_view bound) {
  return Error(absl::StatusCode::kInvalidArgument, "OUT_OF_RANGE",
               absl::StrCat(field, " is ", value, ", must be ", bound));
}
// Labels stay in the daemon, in its log and in lists.
inline constexpr size_t kMaxLabelBytes = 256;
inline absl::Status CheckLength(absl::string_view field, const std::string& text,
                                size_t max = kMaxLabelBytes) {
  if (text.size() <= max) return absl::OkStatus();
  return OutOfRange(absl::StrCat("the length of ", field), text.size(),
                    absl::StrCat("at most ", max, " bytes"));
}
inline absl::Status ShapeMismatch(absl::string_view message) {
  return Error(absl::StatusCode::kInvalidArgument, "SHAPE_MISMATCH", message);
}

}  // namespace gemmd

#endif  // GEMMD_SERVER_CONVERT_ERRORS_H_
