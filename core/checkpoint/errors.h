// What    The two errors every reader gives.
#ifndef GEMMD_CORE_CHECKPOINT_ERRORS_H_
#define GEMMD_CORE_CHECKPOINT_ERRORS_H_

#include "absl/strings/string_view.h"
#include "kernels/base/status.h"

namespace gemmd {

// The files are damaged, or contradict themselves or their config.
inline absl::Status BadCheckpoint(absl::string_view message) {
  return Error(absl::StatusCode::kInvalidArgument, "BAD_CHECKPOINT", message);
}

// The files may be fine, but no reader here knows this variant.
inline absl::Status UnsupportedFormat(absl::string_view message) {
  return Error(absl::StatusCode::kUnimplemented, "UNSUPPORTED_FORMAT", message);
}

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_ERRORS_H_
