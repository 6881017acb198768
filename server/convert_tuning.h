// What    Wire messages of tuning <-> core structs.
// Errors  As convert.h.
// Threads Pure functions.
#ifndef GEMMD_SERVER_CONVERT_TUNING_H_
#define GEMMD_SERVER_CONVERT_TUNING_H_

#include "absl/status/statusor.h"
#include "core/tune.h"
#include "gemmd/v1/admin.pb.h"

namespace gemmd {

absl::StatusOr<TuneJob> FromProto(const v1::TuneRequest& from);

v1::TuneProgress ToProto(const TuneStep& from);
v1::TunedLayer ToProto(const StoredTuning& from);

}  // namespace gemmd

#endif  // GEMMD_SERVER_CONVERT_TUNING_H_
