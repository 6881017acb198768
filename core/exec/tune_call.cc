#include "core/exec/tune_call.h"

#include "absl/strings/str_cat.h"
#include "core/exec/device.h"
#include "kernels/base/status.h"

namespace gemmd {

absl::Status Device::Tune(const TuneCall&) {
  return Error(absl::StatusCode::kFailedPrecondition, "NOT_TUNABLE",
               absl::StrCat(description().id, " computes in one way: there is nothing to choose"));
}

}  // namespace gemmd
