// What    Dense GEMM of the CPU device: y = x * w^T + bias, rounded once to the type of y.
// Memory  Bounded whatever M is: 64 MiB of x in doubles at a time; per thread 4 MiB of weights and
//         16 MiB of results. At least 16 rows of x and 8 of the weights, however long.
// Errors  Only what call.stop answers; it is asked before each block.
// Threads Pure function; work is split over the pool.
#ifndef GEMMD_CORE_EXEC_CPU_GEMM_H_
#define GEMMD_CORE_EXEC_CPU_GEMM_H_

#include <string>

#include "absl/status/status.h"
#include "core/exec/cpu_matmul.h"
#include "core/exec/device.h"
#include "core/exec/thread_pool.h"

namespace gemmd {

// `call` is valid (ValidateCall); `tensor` is its layer.
absl::Status RunCpuGemm(ThreadPool& pool, const StandardTensor& tensor, const GemmCall& call);

// Rows [first, first + rows) of `x` as doubles with their scales applied, transformed where the call asks for it and
// quantized where the layer does, ld = PaddedColumns(K).
void ReadActivations(ThreadPool& pool, const StandardTensor& tensor, const GemmCall& call,
                     int64_t first, int64_t rows, double* out);

// The report of a layer that asks for activations of type `wanted` (kNoFormat: as the request has them) and
// whose product took `x`. `why`: why the layer's own were not made of it.
CallReport ReportFor(const NumberFormat& wanted, const NumberFormat& x, Order order,
                     const std::string& why);

}  // namespace gemmd

#endif  // GEMMD_CORE_EXEC_CPU_GEMM_H_
