// What    The fixture of dense GEMM tests on a GPU: random layers, cases of M, and whether the kernel that
//         serves a case rounds its weights.
#ifndef GEMMD_TESTS_GPU_GEMM_FIXTURE_H_
#define GEMMD_TESTS_GPU_GEMM_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "kernels/select/sm90_choice.h"
#include "tests/gpu/gpu_fixture.h"

namespace gemmd::testing {

class GemmTest : public GpuTest {
 protected:
  // Kernels for many rows round weight times scale to x's type: half of its last bit each.
  void AllowRounding(const QuantSpec& spec, const LayerShape& shape, GemmCase& c) {
    if (RoundsWeights(spec, shape, c)) c.sum_bits = c.x_type == kBFloat16 ? 8 : 11;
  }
  bool RoundsWeights(const QuantSpec& spec, const LayerShape& shape, const GemmCase& c) {
    if (c.x_type.bits != 16 || c.batch_invariant) return false;
    if (!SupportsSm90(spec, shape, device().description().architecture).ok()) return false;
    const auto x_type = c.x_type == kBFloat16 ? ElementType::kBFloat16 : ElementType::kFloat16;
    for (const Sm90Choice& choice : ChooseSm90(spec, shape, x_type)) {
      if (c.m > choice.largest_m) continue;
      const bool is_exact =
          choice.config.scale_is_relative && spec.weight.kind != NumberKind::kInteger;
      return choice.config.scale_on_weights && !is_exact;
    }
    return false;
  }

  // Loads a random layer of every spec and runs every case on each.
  void RunAll(const std::vector<QuantSpec>& specs, const LayerShape& shape,
              const std::vector<GemmCase>& cases, const LayerOptions& options = {}) {
    std::vector<StandardTensor> tensors;
    for (const QuantSpec& spec : specs)
      tensors.push_back(RandomTensor(spec, shape, random_, options));
    const auto layers = LoadAll(tensors);
    for (size_t i = 0; i < layers.size(); ++i) {
      ASSERT_NE(layers[i], nullptr) << "spec " << i;
      for (GemmCase c : cases) {
        AllowRounding(specs[i], shape, c);
        const GemmRun run = RunGemmCase(runner(), tensors[i], layers[i], c, random_);
        ASSERT_FALSE(HasFailure()) << run.report.kernel << ", spec " << i << ", M " << c.m << ", N "
                                   << shape.n << ", K " << shape.k;
      }
    }
  }
};

inline std::vector<GemmCase> CasesOfM(const std::vector<int64_t>& sizes, GemmCase base = {}) {
  std::vector<GemmCase> cases;
  for (const int64_t m : sizes) {
    cases.push_back(base);
    cases.back().m = m;
  }
  return cases;
}

struct MultiplyOptions {
  bool batch_invariant = false;
  bool fp16_accumulation = false;
};

inline HostMatrix Multiply(DeviceRunner& runner, const std::shared_ptr<DeviceLayer>& layer,
                           const HostMatrix& x, const NumberFormat& y_type,
                           const MultiplyOptions& options = {}) {
  HostMatrix y = PoisonedMatrix(y_type, x.rows, layer->shape().n);
  const DeviceMatrix device_x = runner.Upload(x);
  const DeviceMatrix device_y = runner.Upload(y);
  GemmCall call;
  call.layer = layer;
  call.x = device_x.view;
  call.y = device_y.view;
  call.batch_invariant = options.batch_invariant;
  call.fp16_accumulation = options.fp16_accumulation;
  const absl::StatusOr<CallReport> report = runner.device().RunGemm(runner.stream(), call);
  EXPECT_TRUE(report.ok()) << report.status().ToString();
  runner.Download(device_y, y);
  return y;
}

}  // namespace gemmd::testing

#endif  // GEMMD_TESTS_GPU_GEMM_FIXTURE_H_
