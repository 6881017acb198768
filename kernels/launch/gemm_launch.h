// What    A planned kernel, its arguments and the number of rows -> one launch.
// Errors  As cuda::LaunchKernel; InvalidArgument SHAPE_MISMATCH: more row tiles than a grid has
//         (LaunchDense then launches more than once).
// Threads Any; the context must be current. No allocation, lock or driver query.
#ifndef GEMMD_KERNELS_LAUNCH_GEMM_LAUNCH_H_
#define GEMMD_KERNELS_LAUNCH_GEMM_LAUNCH_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/contract/gemm_args.h"
#include "kernels/cuda/launch.h"
#include "kernels/launch/gemm_plan.h"

namespace gemmd {

// Tiles of block_m rows: of args.m rows; nothing is launched for none. One launch, unless there are more
// tiles than a grid has.
absl::Status LaunchDense(const cuda::DriverTable& driver, const GemmKernel& kernel,
                         const GemmArgs& args, CUstream stream);

// `slots` rows spread over experts in a way only the device knows.
absl::Status LaunchIndexed(const cuda::DriverTable& driver, const GemmKernel& kernel,
                           const GemmArgs& args, int64_t slots, CUstream stream);

// The most tiles that `slots` rows spread over `experts` experts can fill.
constexpr int64_t LargestRowTiles(int64_t slots, int64_t experts, int64_t block_m) {
  return slots / block_m + (slots < experts ? slots : experts);
}

// Rows [first, first + rows) of a request.
GemmArgs RowsOf(const GemmArgs& args, int64_t first, int64_t rows);

// Blocks as the kernel's grid rule says.
absl::StatusOr<cuda::LaunchGrid> GemmGrid(const GemmKernel& kernel, int64_t row_tiles, int64_t n);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_LAUNCH_GEMM_LAUNCH_H_
