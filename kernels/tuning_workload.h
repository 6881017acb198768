// What    One layer of random weights on the GPU, random x for the most rows, and y: what the kernels are
//         measured with.
// Errors  ResourceExhausted GPU_OOM; as PackWeights and the driver.
// Threads One thread, with the context current.
#ifndef GEMMD_KERNELS_TUNING_WORKLOAD_H_
#define GEMMD_KERNELS_TUNING_WORKLOAD_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/contract/gemm_args.h"
#include "kernels/contract/quant_spec.h"
#include "kernels/cuda/memory.h"

namespace gemmd {

class TuningWorkload {
 public:
  // The layer passes SupportsSm90.
  static absl::StatusOr<TuningWorkload> Create(const cuda::DriverTable& driver,
                                               const QuantSpec& spec, const LayerShape& shape,
                                               ElementType x_type, int64_t most_m);

  // A dense request with `m` rows, at most those of Create; y is bfloat16.
  GemmArgs Args(int64_t m) const;

 private:
  TuningWorkload() = default;

  std::vector<cuda::DeviceBuffer> memory_;
  GemmArgs args_{};
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_TUNING_WORKLOAD_H_
