#include "kernels/launch/pack_launch.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"

namespace gemmd {

absl::Status LaunchPack(const cuda::DriverTable& driver, CUkernel kernel, const PackArgs& args,
                        int64_t units, CUstream stream) {
  constexpr int64_t kLargestGrid = (int64_t{1} << 31) - 1;
  const int64_t blocks = args.Blocks(units);
  if (blocks > kLargestGrid) {
    return Error(absl::StatusCode::kInvalidArgument, "SHAPE_MISMATCH",
                 absl::StrCat("weights have ", blocks, " units, a launch takes ", kLargestGrid));
  }
  cuda::LaunchGrid grid;
  grid.grid.x = static_cast<unsigned>(blocks);
  grid.block.x = PackArgs::kThreads;
  PackArgs copy = args;
  void* params[] = {&copy};
  return cuda::LaunchKernel(driver, kernel, grid, stream, params);
}

}  // namespace gemmd
