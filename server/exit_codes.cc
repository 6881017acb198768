#include "server/exit_codes.h"

#include <cerrno>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace gemmd {

int ExitCodeOf(const absl::Status& status) {
  static constexpr std::pair<const char*, int> kCodes[] = {
      {kBadFlag, kExitBadFlag},
      {kBadConfig, kExitBadConfig},
      {kNoDevice, kExitNoDevice},
      {kCannotCreate, kExitCannotCreate},
      {kAlreadyRunning, kExitAlreadyRunning},
      {kNotPermitted, kExitNotPermitted},
  };
  const std::string reason = ReasonOf(status);
  for (const auto& [name, code] : kCodes) {
    if (reason == name) return code;
  }
  return kExitFatal;
}

absl::Status SystemError(int error, absl::string_view what) {
  const bool permission = error == EACCES || error == EPERM || error == EROFS;
  return Error(permission ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kUnavailable,
               permission ? kNotPermitted : kCannotCreate,
               absl::StrCat(what, ": ", std::strerror(error)));
}

}  // namespace gemmd
