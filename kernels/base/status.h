// What    The two macros for early return of a Status, and stable error reasons.
// Errors  A reason travels as a payload of the Status; the server turns it into
//         google.rpc.ErrorInfo. The list of reasons and what a caller should do: proto/README.md.
#ifndef GEMMD_KERNELS_BASE_STATUS_H_
#define GEMMD_KERNELS_BASE_STATUS_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace gemmd {

// Status `code` with `message` and the stable `reason` (UPPER_SNAKE_CASE).
absl::Status Error(absl::StatusCode code, absl::string_view reason, absl::string_view message);

// The reason of `status`, or empty.
std::string ReasonOf(const absl::Status& status);

// `status` with "`context`: " before its message; code and reason stay.
absl::Status Annotate(const absl::Status& status, absl::string_view context);

}  // namespace gemmd

#define GEMMD_STATUS_CONCAT_(a, b) a##b
#define GEMMD_STATUS_CONCAT(a, b) GEMMD_STATUS_CONCAT_(a, b)

#define GEMMD_RETURN_IF_ERROR(expression)                     \
  do {                                                        \
    if (absl::Status status_ = (expression); !status_.ok()) { \
      return status_;                                         \
    }                                                         \
  } while (false)

#define GEMMD_ASSIGN_OR_RETURN_(statusor, target, expression) \
  auto statusor = (expression);                               \
  if (!statusor.ok()) return std::move(statusor).status();    \
  target = *std::move(statusor)

#define GEMMD_ASSIGN_OR_RETURN(target, expression) \
  GEMMD_ASSIGN_OR_RETURN_(GEMMD_STATUS_CONCAT(statusor_, __LINE__), target, expression)

#endif  // GEMMD_KERNELS_BASE_STATUS_H_
