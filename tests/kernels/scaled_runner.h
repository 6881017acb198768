// What    Layers with an input scale: random factors, what a GPU makes of x with them, and GEMM cases compared
//         with the double-precision product of that.
// Keys    As device_runner.h.
#ifndef GEMMD_TESTS_KERNELS_SCALED_RUNNER_H_
#define GEMMD_TESTS_KERNELS_SCALED_RUNNER_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>

#include "tests/kernels/quantized_runner.h"

namespace gemmd::testing {

// Of `expert` and a column.
inline float FactorOf(const StandardTensor& tensor, int64_t expert, int64_t column) {
  float factor;
  std::memcpy(&factor,
              tensor.input_scale.data() + (expert * tensor.shape.k + column) * sizeof(factor),
              sizeof(factor));
  return factor;
}

// Factors of all 24 bits of a float32, both signs, of magnitudes from `largest` / 16 on, other ones for each expert.
inline StandardTensor WithInputScale(StandardTensor tensor, Random& random, double largest = 4) {
  tensor.has_input_scale = true;
  tensor.input_scale.resize(static_cast<size_t>(tensor.shape.experts * tensor.shape.k) * sizeof(float));
  for (int64_t i = 0; i < tensor.shape.experts * tensor.shape.k; ++i) {
    const double magnitude = Uniform(random, largest / 16, largest);
    SetValue<float>(tensor.input_scale, i, static_cast<float>(random() % 4 == 0 ? -magnitude : magnitude));
  }
  return tensor;
}

// The same factors for all experts: those of the first.
inline StandardTensor WithSharedFactors(StandardTensor tensor) {
  const auto row = static_cast<std::ptrdiff_t>(tensor.shape.k * static_cast<int64_t>(sizeof(float)));
  for (int64_t expert = 1; expert < tensor.shape.experts; ++expert) {
    std::copy_n(tensor.input_scale.begin(), row, tensor.input_scale.begin() + expert * row);
  }
  return tensor;
}

// fl32(x * factor), rounded to `type`.
inline HostMatrix MultiplyByReference(const StandardTensor& tensor, const HostMatrix& x,
                                      const NumberFormat& type, int64_t expert = 0) {
  HostMatrix product = PoisonedMatrix(type, x.rows, x.columns);
  for (int64_t row = 0; row < x.rows; ++row) {
    for (int64_t k = 0; k < x.columns; ++k) {
      const float value = static_cast<float>(x.at(row, k)) * FactorOf(tensor, expert, k);
      product.set(row, k, value);
    }
  }
  return product;
}

// Runs one case on `layer`, which holds `tensor` and multiplies x, and compares the result. `c.x_scale_columns` is
// 0 or 1.
inline GemmRun RunScaledCase(DeviceRunner& runner, const StandardTensor& tensor,
                             const std::shared_ptr<DeviceLayer>& layer, const GemmCase& c,
                             Random& random) {
  auto [run, x, y, call] = UploadCase(runner, layer, c, random);
  std::optional<HostMatrix> scale;
  DeviceMatrix device_scale;
  if (c.x_scale_columns > 0) {
    scale = RandomMatrix(kFloat32, c.m, 1, random, false, 1 + c.x_scale_gap);
    device_scale = runner.Upload(*scale);
    call.x_scale = device_scale.view;
  }
  const absl::StatusOr<CallReport> report = runner.device().RunGemm(runner.stream(), call);
  EXPECT_TRUE(report.ok()) << report.status().ToString();
  if (!report.ok()) return run;
  run.report = *report;
  runner.Download(y, run.y);
  if (report->activation_used.bits < c.x_type.bits) {
    const QuantizedX quantized =
        QuantizeByReference(tensor, MultiplyByReference(tensor, run.x, kFloat32));
    CompareGemm(tensor, c, quantized.elements, quantized.scale, run.y, random);
    return run;
  }
  const HostMatrix product =
      MultiplyByReference(tensor, run.x, c.x_type.bits == 8 ? kFloat32 : c.x_type);
  CompareGemm(tensor, c, product, scale, run.y, random);
  return run;
}

}  // namespace gemmd::testing

#endif  // GEMMD_TESTS_KERNELS_SCALED_RUNNER_H_
