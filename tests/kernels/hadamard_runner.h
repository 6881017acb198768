// What    Requests with hadamard_block on a GPU, compared with the double-precision product of what the
//         reference makes of x.
// Keys    As device_runner.h.
#ifndef GEMMD_TESTS_KERNELS_HADAMARD_RUNNER_H_
#define GEMMD_TESTS_KERNELS_HADAMARD_RUNNER_H_

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "absl/time/clock.h"
#include "core/quant/hadamard.h"
#include "kernels/base/status.h"
#include "tests/kernels/scaled_runner.h"

namespace gemmd::testing {

// fl32 of the transform, rounded to `type`.
inline HostMatrix TransformByReference(const HostMatrix& x, int64_t block, const NumberFormat& type) {
  HostMatrix out = PoisonedMatrix(type, x.rows, x.columns);
  for (int64_t row = 0; row < x.rows; ++row) {
    std::vector<double> values = MatrixRow(x, row);
    TransformByHadamard(block, absl::MakeSpan(values));
    for (int64_t k = 0; k < x.columns; ++k) out.set(row, k, values[static_cast<size_t>(k)]);
  }
  return out;
}

// Asks again while the request's kernel is being compiled, for at most two minutes.
inline absl::StatusOr<CallReport> RunWhenCompiled(DeviceRunner& runner, const GemmCall& call) {
  const absl::Time deadline = absl::Now() + absl::Minutes(2);
  while (true) {
    absl::StatusOr<CallReport> report = runner.device().RunGemm(runner.stream(), call);
    if (ReasonOf(report.status()) != "KERNEL_COMPILING" || absl::Now() > deadline) return report;
    absl::SleepFor(absl::Milliseconds(5));
  }
}

// Runs one case on `layer`, which holds `tensor`, and compares the result. `c`: without x scales.
inline GemmRun RunHadamardCase(DeviceRunner& runner, const StandardTensor& tensor,
                               const std::shared_ptr<DeviceLayer>& layer, const GemmCase& c, int64_t block,
                               Random& random) {
  auto [run, x, y, call] = UploadCase(runner, layer, c, random);
  call.hadamard_block = block;
  const absl::StatusOr<CallReport> report = RunWhenCompiled(runner, call);
  EXPECT_TRUE(report.ok()) << report.status().ToString();
  if (!report.ok()) return run;
  run.report = *report;
  EXPECT_EQ(run.report.hadamard_block, block);
  runner.Download(y, run.y);
  const HostMatrix product =
      tensor.has_input_scale ? MultiplyByReference(tensor, run.x, kFloat32) : run.x;
  if (run.report.activation_used.bits == 8) {
    const QuantizedX quantized = QuantizeByReference(tensor, TransformByReference(product, block, kFloat32));
    CompareGemm(tensor, c, quantized.elements, quantized.scale, run.y, random);
    return run;
  }
  // The CPU device does not round what it transforms.
  const bool is_cpu = runner.device().description().kind == DeviceKind::kCpu;
  const HostMatrix h = TransformByReference(product, block, is_cpu ? kFloat32 : c.x_type);
  CompareGemm(tensor, c, h, std::nullopt, run.y, random);
  return run;
}

}  // namespace gemmd::testing

#endif  // GEMMD_TESTS_KERNELS_HADAMARD_RUNNER_H_
