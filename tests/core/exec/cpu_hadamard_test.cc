// Requests with hadamard_block on the CPU device: the bits of a request whose x is transformed already.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/exec/cpu_device.h"
#include "core/quant/hadamard.h"
#include "tests/support/tensors.h"

namespace gemmd {
namespace {

using testing::HostMatrix;
using testing::Int4Spec;
using testing::Random;
using testing::RandomTensor;

constexpr int64_t kRows = 19;
constexpr int64_t kInputs = 192;
constexpr int64_t kOutputs = 21;

class CpuHadamardTest : public ::testing::Test {
 protected:
  CpuHadamardTest() : device_(CreateCpuDevice({2})), stream_(device_->CreateStream().value()) {}

  CallReport Run(const StandardTensor& tensor, HostMatrix& x, HostMatrix& y, int64_t block,
                 bool batch_invariant = false) {
    GemmCall call;
    call.layer = device_->LoadLayer(tensor).value();
    call.x = x.view();
    call.y = y.view();
    call.batch_invariant = batch_invariant;
    call.hadamard_block = block;
    const auto report = device_->RunGemm(*stream_, call);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.value_or(CallReport());
  }

  HostMatrix RandomX(const NumberFormat& type, int64_t rows = kRows) {
    HostMatrix x(type, rows, kInputs, /*padding=*/3);
    x.Fill([](int64_t row, int64_t column) {
      return row == 4 ? 0 : std::sin(static_cast<double>(row * 151 + column)) * (1 + row);
    });
    return x;
  }

  // float32; x times `factor` of its column first.
  template <typename Factor>
  HostMatrix Transformed(HostMatrix& x, int64_t block, Factor factor) {
    HostMatrix out(kFloat32, x.rows(), x.columns());
    for (int64_t row = 0; row < x.rows(); ++row) {
      std::vector<double> values;
      for (int64_t k = 0; k < x.columns(); ++k) {
        values.push_back(static_cast<float>(x.Get(row, k) * double{factor(k)}));
      }
      TransformByHadamard(block, absl::MakeSpan(values));
      for (int64_t k = 0; k < x.columns(); ++k) out.Set(row, k, values[static_cast<size_t>(k)]);
    }
    return out;
  }
  HostMatrix Transformed(HostMatrix& x, int64_t block) {
    return Transformed(x, block, [](int64_t) { return 1.0f; });
  }

  static void ExpectSame(HostMatrix& got, HostMatrix& expected) {
    for (int64_t row = 0; row < got.rows(); ++row) {
      for (int64_t n = 0; n < got.columns(); ++n) {
        ASSERT_EQ(got.Code(row, n), expected.Code(row, n)) << row << ", " << n;
      }
    }
  }

  static StandardTensor Tensor(const NumberFormat& activation, ActivationScaleKind scale, int64_t group = 0) {
    QuantSpec spec = Int4Spec();
    spec.activation = activation;
    spec.activation_scale = scale;
    spec.activation_group = group;
    return RandomTensor(spec, {1, kOutputs, kInputs}, 5);
  }

  const std::unique_ptr<Device> device_;
  const std::unique_ptr<Stream> stream_;
};

TEST_F(CpuHadamardTest, XIsTransformedBeforeItIsQuantized) {
  const StandardTensor tensors[] = {
      Tensor(kFloat8E4M3, ActivationScaleKind::kDynamicToken), Tensor(kInt8, ActivationScaleKind::kDynamicToken),
      Tensor(kInt8, ActivationScaleKind::kDynamicGroup, 96), Tensor(kFloat8E5M2, ActivationScaleKind::kStaticTensor)};
  for (const StandardTensor& tensor : tensors) {
    for (const int64_t block : {2, 16, 64}) {
      for (const NumberFormat& type : {kFloat16, kBFloat16, kFloat32}) {
        for (const bool batch_invariant : {false, true}) {
          HostMatrix x = RandomX(type);
          HostMatrix transformed = Transformed(x, block);
          HostMatrix got(kFloat32, kRows, kOutputs);
          HostMatrix expected(kFloat32, kRows, kOutputs);
          const CallReport report = Run(tensor, x, got, block, batch_invariant);
          EXPECT_EQ(report.hadamard_block, block);
          EXPECT_EQ(report.activation_used, tensor.spec.activation);
          EXPECT_EQ(Run(tensor, transformed, expected, 0, batch_invariant).hadamard_block, 0);
          ExpectSame(got, expected);
        }
      }
    }
  }
}

TEST_F(CpuHadamardTest, XThatIsNotQuantizedIsUsedTransformed) {
  const StandardTensor tensor = RandomTensor(Int4Spec(), {1, kOutputs, kInputs}, 5);
  HostMatrix x = RandomX(kBFloat16);
  HostMatrix transformed = Transformed(x, 32);
  HostMatrix got(kFloat32, kRows, kOutputs);
  HostMatrix expected(kFloat32, kRows, kOutputs);
  EXPECT_EQ(Run(tensor, x, got, 32).activation_used, kBFloat16);
  Run(tensor, transformed, expected, 0);
  ExpectSame(got, expected);
}

TEST_F(CpuHadamardTest, TheInputScaleComesFirst) {
  const StandardTensor plain = Tensor(kFloat8E4M3, ActivationScaleKind::kDynamicToken);
  StandardTensor scaled = plain;
  const auto factor = [](int64_t k) { return 0.5f + static_cast<float>(k) / 7; };
  scaled.has_input_scale = true;
  for (int64_t k = 0; k < kInputs; ++k) testing::Append(scaled.input_scale, float{factor(k)});
  HostMatrix x = RandomX(kBFloat16);
  HostMatrix transformed = Transformed(x, 64, factor);
  HostMatrix got(kFloat32, kRows, kOutputs);
  HostMatrix expected(kFloat32, kRows, kOutputs);
  Run(scaled, x, got, 64);
  Run(plain, transformed, expected, 0);
  ExpectSame(got, expected);
}

TEST_F(CpuHadamardTest, ABatchInvariantRowDoesNotDependOnM) {
  const StandardTensor tensor = Tensor(kFloat8E4M3, ActivationScaleKind::kDynamicToken);
  HostMatrix all = RandomX(kBFloat16);
  HostMatrix y(kFloat32, kRows, kOutputs);
  Run(tensor, all, y, 64, /*batch_invariant=*/true);
  for (const int64_t rows : {1, 7}) {
    HostMatrix few = RandomX(kBFloat16, rows);
    HostMatrix got(kFloat32, rows, kOutputs);
    Run(tensor, few, got, 64, /*batch_invariant=*/true);
    ExpectSame(got, y);
  }
}

TEST_F(CpuHadamardTest, NoRowsAreFine) {
  HostMatrix x = RandomX(kBFloat16, 0);
  HostMatrix y(kFloat32, 0, kOutputs);
  EXPECT_EQ(Run(Tensor(kInt8, ActivationScaleKind::kDynamicToken), x, y, 64).hadamard_block, 64);
}

}  // namespace
}  // namespace gemmd
