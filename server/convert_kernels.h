// What    Wire messages of prewarming and of the kernel cache <-> core structs.
// Errors  As convert.h.
// Threads Pure functions.
#ifndef GEMMD_SERVER_CONVERT_KERNELS_H_
#define GEMMD_SERVER_CONVERT_KERNELS_H_

#include "absl/status/statusor.h"
#include "core/prewarm.h"
#include "gemmd/v1/admin.pb.h"

namespace gemmd {

absl::StatusOr<PrewarmJob> FromProto(const v1::PrewarmRequest& from);
absl::StatusOr<KernelFilter> FromProto(const v1::CacheFilter& from);

v1::PrewarmProgress ToProto(const PrewarmPlan& from);  // the first message
v1::PrewarmProgress ToProto(const PrewarmStep& from);
v1::CachedKernel ToProto(const StoredKernel& from);
v1::CacheOverflow ToProto(const CacheOverflow& from);

}  // namespace gemmd

#endif  // GEMMD_SERVER_CONVERT_KERNELS_H_
