// What    Requests in core's structs -> arguments of the kernels, and the report of what ran.
// Errors  Unimplemented UNSUPPORTED_DTYPE.
// Threads Pure functions: no device is touched.
#ifndef GEMMD_CORE_EXEC_CUDA_CALLS_H_
#define GEMMD_CORE_EXEC_CUDA_CALLS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "core/exec/cuda_layer.h"
#include "core/exec/device.h"
#include "kernels/gemm.h"

namespace gemmd {

absl::StatusOr<GemmArgs> MakeGemmArgs(const CudaLayer& layer, const GemmCall& call);
DenseOptions DenseOptionsOf(const GemmCall& call);

// Extents of the whole request; `tokens` may be lowered to run it in chunks.
absl::StatusOr<MoeShape> MakeMoeShape(const CudaLayer& gate_up, const CudaLayer& down,
                                      const MoeCall& call);

// The launch of `tokens` tokens from `first_token` on.
absl::StatusOr<MoeLaunch> MakeMoeLaunch(const CudaLayer& gate_up, const CudaLayer& down,
                                        const MoeCall& call, int64_t first_token, int64_t tokens,
                                        uintptr_t workspace);

// `x`: the type that the multiplication took. `why`: why the layer's own was not made of it.
CallReport ReportOf(const GemmKernel& kernel, const QuantSpec& spec, const NumberFormat& x,
                    const std::string& why);

// CallReport::armed_numerics of a request that `served` serves.
uint64_t ArmedNumerics(const LayerPlan& plan, const DenseRequest& request,
                       const GemmKernel& served);

}  // namespace gemmd

#endif  // GEMMD_CORE_EXEC_CUDA_CALLS_H_
