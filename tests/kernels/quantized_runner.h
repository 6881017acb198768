// What    Runs GEMM cases with x of 16 or 32 bits on layers that ask for 8-bit activations, and compares with
//         the double-precision product of what core/quant/activations makes of x.
// Keys    As device_runner.h.
#ifndef GEMMD_TESTS_KERNELS_QUANTIZED_RUNNER_H_
#define GEMMD_TESTS_KERNELS_QUANTIZED_RUNNER_H_

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/quant/activations.h"
#include "tests/kernels/device_runner.h"

namespace gemmd::testing {

struct QuantizedX {
  HostMatrix elements;
  std::optional<HostMatrix> scale;  // none with a static scale
};

// By the reference. A NaN element of int8 is 0.
inline QuantizedX QuantizeByReference(const StandardTensor& tensor, const HostMatrix& x) {
  const QuantSpec& spec = tensor.spec;
  float fixed = 0;
  if (spec.activation_scale == ActivationScaleKind::kStaticTensor) {
    std::memcpy(&fixed, tensor.activation_scale.data(), sizeof(fixed));
  }
  const ActivationScaling scaling = ScalingOf(spec, fixed);
  const int64_t groups = scaling.group > 0 ? (x.columns + scaling.group - 1) / scaling.group : 1;
  QuantizedX quantized;
  quantized.elements =
      PoisonedMatrix(spec.activation, x.rows, x.columns, 0, spec.activation == kInt8);
  if (fixed == 0) quantized.scale = PoisonedMatrix(kFloat32, x.rows, groups);
  for (int64_t row = 0; row < x.rows; ++row) {
    std::vector<float> values;
    for (int64_t k = 0; k < x.columns; ++k) values.push_back(static_cast<float>(x.at(row, k)));
    const QuantizedRow out = QuantizeActivations(values, scaling);
    for (int64_t k = 0; k < x.columns; ++k) {
      const double element = out.elements[static_cast<size_t>(k)];
      const bool is_lost = spec.activation == kInt8 && std::isnan(element);
      quantized.elements.set(row, k, is_lost ? 0 : element);
    }
    for (int64_t g = 0; quantized.scale.has_value() && g < groups; ++g) {
      quantized.scale->set(row, g, out.scales[static_cast<size_t>(g)]);
    }
  }
  return quantized;
}

// Runs one case on `layer`, which holds `tensor` and quantizes x, and compares the result. `c`: without
// x scales.
inline GemmRun RunQuantizedCase(DeviceRunner& runner, const StandardTensor& tensor,
                                const std::shared_ptr<DeviceLayer>& layer, const GemmCase& c,
                                Random& random) {
  auto [run, x, y, call] = UploadCase(runner, layer, c, random);
  const absl::StatusOr<CallReport> report = runner.device().RunGemm(runner.stream(), call);
  EXPECT_TRUE(report.ok()) << report.status().ToString();
  if (!report.ok()) return run;
  run.report = *report;
  EXPECT_EQ(run.report.activation_used, tensor.spec.activation) << run.report.reason;
  EXPECT_EQ(run.report.reason, "");
  runner.Download(y, run.y);
  const QuantizedX quantized = QuantizeByReference(tensor, run.x);
  CompareGemm(tensor, c, quantized.elements, quantized.scale, run.y, random);
  return run;
}

}  // namespace gemmd::testing

#endif  // GEMMD_TESTS_KERNELS_QUANTIZED_RUNNER_H_
