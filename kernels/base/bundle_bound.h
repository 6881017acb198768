// What    How large a bundle of kernels may be: the daemon exports and takes none beyond it, and gemmctl sends none.
// Units   Bytes.
// Source  ExportCache and ImportCache of proto/gemmd/v1/admin.proto.
#ifndef GEMMD_KERNELS_BASE_BUNDLE_BOUND_H_
#define GEMMD_KERNELS_BASE_BUNDLE_BOUND_H_

#include <cstdint>

namespace gemmd {

inline constexpr uint64_t kMaxBundleBytes = uint64_t{1} << 30;

}  // namespace gemmd

#endif  // GEMMD_KERNELS_BASE_BUNDLE_BOUND_H_
