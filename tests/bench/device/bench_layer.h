// What    A random layer of one format on the GPU, loaded by the daemon's own code, and one GEMM
//         with it as the daemon launches it.
// Errors  As Device::LoadLayer and LaunchDense.
// Threads Load: any. Else one thread, with the context current.
#ifndef GEMMD_TESTS_BENCH_DEVICE_BENCH_LAYER_H_
#define GEMMD_TESTS_BENCH_DEVICE_BENCH_LAYER_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "core/exec/cuda_layer.h"
#include "core/exec/device.h"
#include "tests/bench/device/inputs.h"
#include "tests/bench/device/sampler.h"
#include "tests/bench/host/bench_format.h"
#include "tests/bench/host/check.h"
#include "tests/bench/host/report.h"

namespace gemmd::bench {

class BenchLayer {
 public:
  // `checks` false: no reference is kept.
  static absl::StatusOr<std::unique_ptr<BenchLayer>> Load(Device& device, const BenchFormat& format,
                                                          int64_t n, int64_t k, uint64_t seed,
                                                          bool checks);

  const BenchFormat& format() const { return format_; }
  int64_t n() const { return layer_->shape().n; }
  int64_t k() const { return layer_->shape().k; }
  const SampleChecker* checker() const { return checker_.get(); }  // null without checks

  // Waits for the kernels that sum in float16, if the layer has any.
  void WaitForHalfSums() const;
  bool has_half_sums() const;

  // y [m, n] at `y`.
  absl::StatusOr<GemmCall> MakeCall(Inputs& inputs, int64_t m, uintptr_t y) const;
  Operation MakeOperation(const GemmCall& call, CUstream stream) const;
  // Everything about the point that is no measurement.
  absl::StatusOr<Row> Describe(const GemmCall& call) const;

  // The same product from bfloat16 x, which the device quantizes first. `operation` is null where the
  // layer asks for no such thing.
  struct QuantizedPoint {
    Row row;
    Operation operation;
  };
  absl::StatusOr<QuantizedPoint> MakeQuantized(Inputs& inputs, int64_t m, uintptr_t y,
                                               CUstream stream) const;

 private:
  Row DescribeRun(const GemmCall& call, const GemmKernel& kernel, const CallReport& report) const;

  BenchLayer(BenchFormat format, std::shared_ptr<DeviceLayer> owner, const CudaLayer* layer,
             int64_t weight_bytes, std::unique_ptr<SampleChecker> checker)
      : format_(std::move(format)),
        owner_(std::move(owner)),
        layer_(layer),
        weight_bytes_(weight_bytes),
        checker_(std::move(checker)) {}

  const BenchFormat format_;
  const std::shared_ptr<DeviceLayer> owner_;
  const CudaLayer* const layer_;
  const int64_t weight_bytes_;
  const std::unique_ptr<SampleChecker> checker_;
};

}  // namespace gemmd::bench

#endif  // GEMMD_TESTS_BENCH_DEVICE_BENCH_LAYER_H_
