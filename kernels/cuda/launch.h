// What    One kernel launch. No allocation, lock or driver query; the context must be current.
// Errors  As ToStatus. A fault inside the kernel shows up at a later call on the context.
// Threads Any.
#ifndef GEMMD_KERNELS_CUDA_LAUNCH_H_
#define GEMMD_KERNELS_CUDA_LAUNCH_H_

#include "absl/status/status.h"
#include "kernels/cuda/driver.h"

namespace gemmd::cuda {

struct Dim3 {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;
};

struct LaunchGrid {
  Dim3 grid;     // blocks; a multiple of `cluster` in every direction
  Dim3 block;    // threads
  Dim3 cluster;  // blocks; 1x1x1 = no cluster launch
  unsigned dynamic_shared_bytes = 0;
  // Programmatic dependent launch: may start while the kernel before it in the stream still runs, once all
  // blocks of that one have allowed it; the kernel must then wait (griddepcontrol.wait) before it touches
  // that kernel's results. Behind anything but a kernel it starts as usual. In a captured stream it becomes an
  // edge of the same kind (driver 12.3 and newer). SM90 and newer.
  bool overlaps_previous = false;
};

// `params[i]` points to the i-th kernel argument; the driver copies the values before it returns.
absl::Status LaunchKernel(const DriverTable& driver, CUkernel kernel, const LaunchGrid& grid,
                          CUstream stream, void** params);

}  // namespace gemmd::cuda

#endif  // GEMMD_KERNELS_CUDA_LAUNCH_H_
