// What    GemmArgs::x_map for kernels that copy x by the tensor memory accelerator, x_scale_map for those that
//         need it, y_map for those that store y by it.
// Errors  None: where the accelerator cannot address x (rows that do not start at multiples of 16 bytes),
//         has_x_map is 0 and the kernel's threads copy, where it lets them (GemmKernel::needs_x_map). It
//         is 0 for kernels that need x_map too where their group scales cannot be addressed. Where it cannot
//         address y, y has 32 bits, or a row of N columns is not a multiple of 16 bytes (the accelerator would store
//         beyond its end), has_y_map is 0 and the kernel's threads store.
// Threads Any. No driver call at all where the thread has launched with the same memory and shape before
//         (launch/map_cache.h), else one for each map, which does not reach the GPU.
#ifndef GEMMD_KERNELS_LAUNCH_TENSOR_MAPS_H_
#define GEMMD_KERNELS_LAUNCH_TENSOR_MAPS_H_

#include "kernels/contract/gemm_args.h"
#include "kernels/cuda/driver.h"
#include "kernels/launch/gemm_plan.h"

namespace gemmd {

// Whether the accelerator can address x, and its group scales.
bool HasXMap(const GemmArgs& args);

void SetXMap(const cuda::DriverTable& driver, const GemmKernel& kernel, GemmArgs& args);

void SetYMap(const cuda::DriverTable& driver, const GemmKernel& kernel, GemmArgs& args);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_LAUNCH_TENSOR_MAPS_H_
