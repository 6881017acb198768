// What    Codes of a slice of a layer -> units of packed weights: one launch of device/pack_codes.cuh.
// Errors  As cuda::LaunchKernel; InvalidArgument SHAPE_MISMATCH: more units and chunks than a grid has.
// Threads Any; the context must be current. No allocation, lock or driver query.
#ifndef GEMMD_KERNELS_LAUNCH_PACK_LAUNCH_H_
#define GEMMD_KERNELS_LAUNCH_PACK_LAUNCH_H_

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/contract/pack_args.h"
#include "kernels/cuda/launch.h"

namespace gemmd {

// `units` units from args.first_unit on.
absl::Status LaunchPack(const cuda::DriverTable& driver, CUkernel kernel, const PackArgs& args,
                        int64_t units, CUstream stream);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_LAUNCH_PACK_LAUNCH_H_
