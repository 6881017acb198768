// What    Runs GEMM cases on a Device and compares with the double-precision reference. Used on GPUs (tests/gpu) and on the fake driver (tests/kernels/launch).
// Keys    Outputs are poisoned before the run; guards around every matrix and gaps between rows must keep
//         their bytes.
#ifndef GEMMD_TESTS_KERNELS_DEVICE_RUNNER_H_
#define GEMMD_TESTS_KERNELS_DEVICE_RUNNER_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "core/exec/device.h"
#include "tests/kernels/random_layer.h"

namespace gemmd::testing {

struct DeviceMatrix {
  std::unique_ptr<Memory> memory;
  MatrixView view;
};

class DeviceRunner {
 public:
  static constexpr int64_t kGuardElements = 32;

  explicit DeviceRunner(Device& device) : device_(device) {
    auto stream = device.CreateStream();
    EXPECT_TRUE(stream.ok()) << stream.status().ToString();
    if (stream.ok()) stream_ = *std::move(stream);
  }

  Device& device() { return device_; }
  Stream& stream() { return *stream_; }

  std::shared_ptr<DeviceLayer> Load(const StandardTensor& tensor) {
    const absl::Status valid = Validate(tensor);
    EXPECT_TRUE(valid.ok()) << valid.ToString();
    auto layer = device_.LoadLayer(tensor);
    EXPECT_TRUE(layer.ok()) << layer.status().ToString();
    return layer.ok() ? *layer : nullptr;
  }

  // The matrix starts kGuardElements + `shift` elements into its allocation: odd shifts make it
  // aligned to its element only.
  DeviceMatrix Upload(const HostMatrix& matrix, int64_t shift = 0) {
    const int64_t before = (kGuardElements + shift) * matrix.element_bytes();
    const int64_t after = kGuardElements * matrix.element_bytes();
    Buffer bytes(static_cast<size_t>(before) + matrix.bytes.size() + static_cast<size_t>(after),
                 std::byte{0xff});
    std::copy(matrix.bytes.begin(), matrix.bytes.end(), bytes.begin() + before);
    auto memory = device_.Allocate(bytes.size());
    EXPECT_TRUE(memory.ok()) << memory.status().ToString();
    if (!memory.ok()) return {};
    EXPECT_TRUE(device_.CopyIn((*memory)->address(), bytes).ok());
    DeviceMatrix uploaded;
    uploaded.memory = *std::move(memory);
    uploaded.view = {uploaded.memory->address() + static_cast<uintptr_t>(before),
                     matrix.type,
                     matrix.is_signed_int,
                     matrix.rows,
                     matrix.columns,
                     matrix.row_stride};
    return uploaded;
  }

  // Reads the matrix back, and checks guards and gaps.
  void Download(const DeviceMatrix& from, HostMatrix& matrix) {
    Buffer bytes(from.memory->size());
    const absl::Status copied = device_.CopyOut(from.memory->address(), absl::MakeSpan(bytes));
    ASSERT_TRUE(copied.ok()) << copied.ToString();
    const auto start = static_cast<int64_t>(from.view.address - from.memory->address());
    const auto begin = bytes.begin() + start;
    std::copy(begin, begin + static_cast<int64_t>(matrix.bytes.size()), matrix.bytes.begin());
    const auto untouched = [](std::byte byte) { return byte == std::byte{0xff}; };
    const int64_t guard = kGuardElements * matrix.element_bytes();
    const auto end = begin + static_cast<int64_t>(matrix.bytes.size());
    EXPECT_TRUE(std::all_of(bytes.begin(), begin, untouched)) << "written before the matrix";
    EXPECT_TRUE(std::all_of(end, end + guard, untouched)) << "written past the matrix";
    for (int64_t row = 0; row < matrix.rows; ++row) {
      const auto gap = matrix.bytes.begin() +
                       (row * matrix.row_stride + matrix.columns) * matrix.element_bytes();
      const auto next =
          matrix.bytes.begin() + (row + 1) * matrix.row_stride * matrix.element_bytes();
      ASSERT_TRUE(std::all_of(gap, next, untouched)) << "written between rows, row " << row;
    }
  }

 private:
  Device& device_;
  std::unique_ptr<Stream> stream_;
};

// Up to `limit` of `count` indices: all of them, or both ends and random ones.
inline std::vector<int64_t> SampleIndices(int64_t count, int64_t limit, Random& random) {
  std::vector<int64_t> indices(static_cast<size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  if (limit == 0 || count <= limit) return indices;
  std::shuffle(indices.begin() + 1, indices.end() - 1, random);
  std::swap(indices[1], indices.back());
  indices.resize(static_cast<size_t>(limit));
  return indices;
}

struct GemmCase {
  int64_t m = 1;
  NumberFormat x_type = kFloat16;
  NumberFormat y_type = kFloat32;
  bool integer_valued = false;  // the result must be exact
  int64_t x_gap = 0;            // elements between rows
  int64_t y_gap = 0;
  int64_t shift = 0;            // DeviceRunner::Upload
  int64_t x_scale_columns = 0;  // 0 = no x_scale
  int64_t x_scale_gap = 3;      // between rows of scales; 3: no tensor map can address them
  int64_t sampled = 0;          // rows and columns compared with the reference; 0 = all
  bool batch_invariant = false;
  int sum_bits = 19;  // accuracy of the arithmetic, as in Tolerance
  bool fp16_accumulation = false;
};

// Case `index` of a row of them: strides, offsets and types of y change from one to the next.
inline GemmCase CaseAt(int64_t index, int64_t m, const NumberFormat& x_type, bool batch_invariant,
                       int sum_bits) {
  return {.m = m,
          .x_type = x_type,
          .y_type = index % 2 == 0 ? kBFloat16 : kFloat32,
          .x_gap = index % 4 == 0 ? 0 : 3,
          .y_gap = 5,
          .shift = index % 5 == 0 ? 1 : 0,
          .sampled = 40,
          .batch_invariant = batch_invariant,
          .sum_bits = sum_bits};
}

struct GemmRun {
  HostMatrix x;
  HostMatrix y;
  CallReport report;
};

// x as the product sees it: with its scales.
inline std::vector<double> ScaledRow(const StandardTensor& tensor, const HostMatrix& x,
                                     const std::optional<HostMatrix>& scale, int64_t row) {
  std::vector<double> values = MatrixRow(x, row);
  const bool is_static = !scale.has_value() && x.type.bits == 8 && !tensor.activation_scale.empty();
  float fixed = 1;
  if (is_static) std::memcpy(&fixed, tensor.activation_scale.data(), sizeof(fixed));
  for (size_t k = 0; k < values.size(); ++k) {
    if (!scale.has_value()) {
      values[k] *= fixed;
      continue;
    }
    const int64_t group = scale->columns == 1 ? tensor.shape.k : tensor.spec.activation_group;
    values[k] *= scale->at(row, static_cast<int64_t>(k) / group);
  }
  return values;
}

inline void CompareElement(const HostMatrix& y, int64_t m, int64_t n, const ExactSum& sum,
                           const GemmCase& c) {
  const double got = y.at(m, n);
  if (c.integer_valued) {
    ASSERT_EQ(got, sum.value) << "y[" << m << ", " << n << "]";
  } else {
    ASSERT_NEAR(got, sum.value, Tolerance(sum, y.type, c.sum_bits))
        << "y[" << m << ", " << n << "], magnitude " << sum.magnitude;
  }
}

inline void CompareGemm(const StandardTensor& tensor, const GemmCase& c, const HostMatrix& x,
                        const std::optional<HostMatrix>& scale, const HostMatrix& y,
                        Random& random) {
  for (int64_t m = 0; m < y.rows; ++m) {
    for (int64_t n = 0; n < y.columns; ++n) {
      ASSERT_FALSE(std::isnan(y.at(m, n))) << "y[" << m << ", " << n << "] was not written";
    }
  }
  const std::vector<int64_t> rows = SampleIndices(y.rows, c.sampled, random);
  std::vector<std::vector<double>> activations;
  for (const int64_t m : rows) activations.push_back(ScaledRow(tensor, x, scale, m));
  for (const int64_t n : SampleIndices(y.columns, c.sampled, random)) {
    const std::vector<double> weights = WeightRow(tensor, 0, n);
    const double bias = Bias(tensor, 0, n);
    for (size_t i = 0; i < rows.size(); ++i) {
      ExactSum sum = ExactDot(activations[i], weights);
      sum.value += bias;
      sum.magnitude += std::abs(bias);
      CompareElement(y, rows[i], n, sum, c);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// A case's matrices on the device, and the call without scales of x.
struct UploadedCase {
  GemmRun run;
  DeviceMatrix x;
  DeviceMatrix y;
  GemmCall call;
};
inline UploadedCase UploadCase(DeviceRunner& runner, const std::shared_ptr<DeviceLayer>& layer,
                               const GemmCase& c, Random& random) {
  const auto [experts, n, k] = layer->shape();
  UploadedCase uploaded;
  uploaded.run.x = RandomMatrix(c.x_type, c.m, k, random, c.integer_valued, k + c.x_gap);
  uploaded.run.y = PoisonedMatrix(c.y_type, c.m, n, n + c.y_gap);
  uploaded.x = runner.Upload(uploaded.run.x, c.shift);
  uploaded.y = runner.Upload(uploaded.run.y, c.shift);
  uploaded.call.layer = layer;
  uploaded.call.x = uploaded.x.view;
  uploaded.call.y = uploaded.y.view;
  uploaded.call.batch_invariant = c.batch_invariant;
  uploaded.call.fp16_accumulation = c.fp16_accumulation;
  return uploaded;
}

// Runs one case on `layer`, which holds `tensor`, and compares the result.
inline GemmRun RunGemmCase(DeviceRunner& runner, const StandardTensor& tensor,
                           const std::shared_ptr<DeviceLayer>& layer, const GemmCase& c,
                           Random& random) {
  auto [run, x, y, call] = UploadCase(runner, layer, c, random);
  std::optional<HostMatrix> scale;
  DeviceMatrix device_scale;
  if (c.x_scale_columns > 0) {
    scale = RandomMatrix(kFloat32, c.m, c.x_scale_columns, random, false,
                         c.x_scale_columns + c.x_scale_gap);
    device_scale = runner.Upload(*scale, c.shift);
    call.x_scale = device_scale.view;
  }
  const absl::StatusOr<CallReport> report = runner.device().RunGemm(runner.stream(), call);
  EXPECT_TRUE(report.ok()) << report.status().ToString();
  if (!report.ok()) return run;
  run.report = *report;
  runner.Download(y, run.y);
  CompareGemm(tensor, c, run.x, scale, run.y, random);
  return run;
}

}  // namespace gemmd::testing

#endif  // GEMMD_TESTS_KERNELS_DEVICE_RUNNER_H_
