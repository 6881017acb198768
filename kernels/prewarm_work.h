// What    What a prewarm compiles: every program that loading its layers asks for, once, and the layers that have
//         no kernel. What was measured of kernels (tuning.h) decides as it does when a GPU loads a layer.
// Errors  InvalidArgument BAD_ARCHITECTURE (prewarm_target.h). Without NVRTC nobody knows what it can compile for: no
//         error then, unless GPUs write the name otherwise.
// Threads A function of its arguments.
#ifndef GEMMD_KERNELS_PREWARM_WORK_H_
#define GEMMD_KERNELS_PREWARM_WORK_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/jit/compiler.h"
#include "kernels/kernel_store.h"

namespace gemmd {

struct PrewarmWork {
  std::vector<jit::KernelSource> programs;
  std::vector<PrewarmStep> impossible;  // kNoKernel
};

absl::StatusOr<PrewarmWork> PlanPrewarm(jit::KernelCache& cache,
                                        const std::vector<PrewarmLayer>& layers,
                                        const std::vector<std::string>& architectures,
                                        const std::vector<RowRange>& rows,
                                        const PrewarmTuning& tuning);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_PREWARM_WORK_H_
