// What    Whole MoE block of the CPU device: route, gate/up, activation, down, combine.
// Numbers Both GEMMs, the activation and the combination in double; the intermediate is rounded
//         once to the type of x and y once to its own. Contributions are added in slot order.
// Memory  Tokens in chunks, so that their activations take about 256 MiB and their results 64 MiB
//         per thread, whatever M is.
// Errors  InvalidArgument EXPERT_OUT_OF_RANGE (cpu_routing.h), before y is touched. What call.stop
//         answers; it is asked before each block.
// Threads Pure function; work is split over the pool.
#ifndef GEMMD_CORE_EXEC_CPU_MOE_H_
#define GEMMD_CORE_EXEC_CPU_MOE_H_

#include "absl/status/status.h"
#include "core/exec/device.h"
#include "core/exec/thread_pool.h"

namespace gemmd {

// `call` is valid; the tensors are its layers.
absl::Status RunCpuMoe(ThreadPool& pool, const StandardTensor& gate_up, const StandardTensor& down,
                       const MoeCall& call);

// The activation of one pair; `up` is not used by relu squared.
double Activate(ActivationFunction function, double alpha, double limit, double gate, double up);

}  // namespace gemmd

#endif  // GEMMD_CORE_EXEC_CPU_MOE_H_
