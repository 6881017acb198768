// What    The programs behind a layer's kernels: what PlanLayer and LoadMoeKernels compile, without
//         a GPU, a driver or the weights.
// Errors  Unimplemented NO_KERNEL; InvalidArgument BAD_ARCHITECTURE.
// Threads Pure functions.
#ifndef GEMMD_KERNELS_LAYER_PROGRAMS_H_
#define GEMMD_KERNELS_LAYER_PROGRAMS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/contract/quant_spec.h"
#include "kernels/jit/compiler.h"

namespace gemmd {

absl::StatusOr<std::vector<jit::KernelSource>> LayerPrograms(const QuantSpec& spec,
                                                             const LayerShape& shape,
                                                             const std::string& architecture);

// The kernels around the GEMMs of a mixture-of-experts request.
std::vector<jit::KernelSource> MoePrograms(const std::string& architecture);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_LAYER_PROGRAMS_H_
