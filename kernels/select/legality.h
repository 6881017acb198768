// What    Which configs can exist: on an architecture, and at all.
// Errors  Unimplemented NO_KERNEL: the message names field, value and bound.
// Threads Pure functions.
#ifndef GEMMD_KERNELS_SELECT_LEGALITY_H_
#define GEMMD_KERNELS_SELECT_LEGALITY_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/contract/quant_spec.h"
#include "kernels/select/gemm_config.h"

namespace gemmd {

// Extents of N, K and experts stay below this: kernels count them in 32 bits and step one tile
// beyond.
inline constexpr int64_t kLargestExtent = (int64_t{1} << 31) - 4096;

// 90 for "sm_90a". InvalidArgument BAD_ARCHITECTURE for anything but sm_<number>[a|f].
absl::StatusOr<int> ComputeCapability(const std::string& architecture);

absl::Status Supports(const GemmConfig& config, const std::string& architecture);

// Whether kernels can index a layer of this shape.
absl::Status SupportsShape(const LayerShape& shape);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_SELECT_LEGALITY_H_
