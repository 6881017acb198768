// What    Which kernel serves a layer on a GPU at one M, and why: what `gemmctl explain` shows.
// Threads Any; the answer is of the moment it is asked in.
#ifndef GEMMD_CORE_EXEC_CUDA_EXPLAIN_H_
#define GEMMD_CORE_EXEC_CUDA_EXPLAIN_H_

#include <cstdint>

#include "core/exec/cuda_layer.h"
#include "core/exec/device.h"

namespace gemmd {

KernelExplanation ExplainGemm(const CudaLayer& layer, int64_t m);

}  // namespace gemmd

#endif  // GEMMD_CORE_EXEC_CUDA_EXPLAIN_H_
