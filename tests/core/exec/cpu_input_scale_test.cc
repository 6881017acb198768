// Input scales and zero points of activations on the CPU device, against naive loops in double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "core/exec/cpu_device.h"
#include "core/quant/activations.h"
#include "core/quant/reference.h"
#include "tests/support/tensors.h"

namespace gemmd {
namespace {

using testing::Append;
using testing::HostMatrix;
using testing::Int4Spec;
using testing::Random;
using testing::RandomTensor;

constexpr NumberFormat kInt32 = IntegerFormat(32);

// Factors of nine significant bits, another row for each expert.
double Factor(int64_t expert, int64_t k) {
  return (1 + static_cast<double>((k * 29 + expert * 5) % 255) / 256) * (k % 3 == 0 ? -1 : 1);
}

StandardTensor Scaled(StandardTensor tensor) {
  tensor.has_input_scale = true;
  for (int64_t expert = 0; expert < tensor.shape.experts; ++expert) {
    for (int64_t k = 0; k < tensor.shape.k; ++k) {
      Append(tensor.input_scale, static_cast<float>(Factor(expert, k)));
    }
  }
  EXPECT_TRUE(Validate(tensor).ok()) << Validate(tensor);
  return tensor;
}

// y of one request on a CPU device of its own.
struct Product {
  Product(const StandardTensor& tensor, HostMatrix& x)
      : y(kFloat32, x.rows(), tensor.shape.n), device(CreateCpuDevice({2})) {
    GemmCall call;
    call.layer = device->LoadLayer(tensor).value();
    call.x = x.view();
    call.y = y.view();
    const auto stream = device->CreateStream().value();
    const auto report = device->RunGemm(*stream, call);
    EXPECT_TRUE(report.ok()) << report.status();
  }
  HostMatrix y;
  std::unique_ptr<Device> device;
};

// Every element of y is the sum over k of value(m, k) * w[n, k], whatever its order in double.
template <typename Value>
void ExpectProduct(HostMatrix& y, const StandardTensor& tensor, Value value) {
  const int64_t k = tensor.shape.k;
  std::vector<double> w(static_cast<size_t>(k));
  for (int64_t n = 0; n < tensor.shape.n; ++n) {
    DequantizeRow(tensor, 0, n, absl::MakeSpan(w));
    for (int64_t m = 0; m < y.rows(); ++m) {
      double sum = 0;
      double magnitude = 0;
      for (int64_t i = 0; i < k; ++i) {
        const double product = value(m, i) * w[static_cast<size_t>(i)];
        sum += product;
        magnitude += std::abs(product);
      }
      const double slack = magnitude * static_cast<double>(k + 2) * 0x1p-52;
      EXPECT_NEAR(y.Get(m, n), sum, std::abs(sum) * 0x1p-24 + slack) << m << " " << n;
    }
  }
}

TEST(CpuInputScaleTest, MultipliesXOfEveryWideType) {
  const StandardTensor tensor = Scaled(RandomTensor(Int4Spec(), {1, 12, 64}, 5));
  Random random(1);
  for (const NumberFormat& type : {kFloat32, kFloat16, kBFloat16}) {
    HostMatrix x(type, 5, 64);
    x.FillRandom(random);
    Product run(tensor, x);
    ExpectProduct(run.y, tensor, [&](int64_t m, int64_t k) { return x.Get(m, k) * Factor(0, k); });
  }
}

TEST(CpuInputScaleTest, LeavesXAloneThatWasQuantizedAfterIt) {
  QuantSpec spec = Int4Spec();
  spec.activation = kInt8;
  spec.activation_scale = ActivationScaleKind::kStaticTensor;
  StandardTensor plain = RandomTensor(spec, {1, 12, 64}, 5);
  const StandardTensor tensor = Scaled(plain);
  Random random(2);
  HostMatrix x(kInt8, 3, 64);
  x.FillIntegers(random);
  Product with(tensor, x);
  Product without(plain, x);
  EXPECT_EQ(with.y.bytes(), without.y.bytes());
}

// The codes are those of fl32(x * factor): what a GPU makes of it, bit by bit.
TEST(CpuInputScaleTest, ProductsAreRoundedToFloat32WhereTheyAreQuantized) {
  for (const ActivationScaleKind kind :
       {ActivationScaleKind::kDynamicToken, ActivationScaleKind::kStaticTensor}) {
    QuantSpec spec = Int4Spec();
    spec.activation = kFloat8E4M3;
    spec.activation_scale = kind;
    const StandardTensor tensor = Scaled(RandomTensor(spec, {1, 12, 64}, 5));
    float fixed = 0;
    if (kind == ActivationScaleKind::kStaticTensor) {
      std::memcpy(&fixed, tensor.activation_scale.data(), sizeof(fixed));
    }
    Random random(6);
    HostMatrix x(kFloat32, 4, 64);
    x.FillRandom(random);
    std::vector<QuantizedRow> rows;
    for (int64_t m = 0; m < 4; ++m) {
      std::vector<float> products;
      for (int64_t k = 0; k < 64; ++k) {
        products.push_back(static_cast<float>(x.Get(m, k)) * static_cast<float>(Factor(0, k)));
      }
      rows.push_back(QuantizeActivations(products, ScalingOf(tensor.spec, fixed)));
    }
    Product run(tensor, x);
    ExpectProduct(run.y, tensor, [&](int64_t m, int64_t k) {
      const QuantizedRow& row = rows[static_cast<size_t>(m)];
      return static_cast<double>(row.elements[static_cast<size_t>(k)]) * row.scales[0];
    });
  }
}

TEST(CpuInputScaleTest, TakesTheStaticZeroPointOff) {
  StandardTensor tensor = RandomTensor(Int4Spec(), {1, 12, 64}, 5);
  tensor.encoding = {.format = kInt8,
                     .scale = ActivationScaleKind::kStaticTensor,
                     .group = 0,
                     .zero_points = true,
                     .group_scale = kNoFormat};
  Append(tensor.activation_scale, 0.375f);
  Append(tensor.activation_zero_point, int16_t{-17});
  ASSERT_TRUE(Validate(tensor).ok()) << Validate(tensor);
  HostMatrix x(kInt8, 3, 64);
  x.Fill([](int64_t m, int64_t k) { return static_cast<double>((m * 64 + k * 7) % 256 - 128); });
  Product quantized(tensor, x);
  ExpectProduct(quantized.y, tensor,
                [&](int64_t m, int64_t k) { return (x.Get(m, k) + 17) * 0.375; });
  HostMatrix wide(kFloat32, 3, 64);  // is what it is
  wide.Fill([&](int64_t m, int64_t k) { return x.Get(m, k); });
  Product unquantized(tensor, wide);
  ExpectProduct(unquantized.y, tensor, [&](int64_t m, int64_t k) { return x.Get(m, k); });
}

// Two experts with factors of their own, in front of both products: relu squared needs no exponential.
TEST(CpuInputScaleTest, EveryExpertOfAMixtureHasItsOwn) {
  const StandardTensor up = Scaled(RandomTensor(Int4Spec(), {2, 32, 64}, 8));
  const StandardTensor down = Scaled(RandomTensor(Int4Spec(), {2, 12, 32}, 9));
  const std::unique_ptr<Device> device = CreateCpuDevice({2});
  HostMatrix x(kFloat32, 2, 64);
  HostMatrix y(kFloat32, 2, 12);
  HostMatrix ids(kInt32, 2, 1);
  HostMatrix weights(kFloat32, 2, 1);
  Random random(3);
  x.FillRandom(random);
  ids.Fill([](int64_t m, int64_t) { return static_cast<double>(m); });
  weights.Fill([](int64_t, int64_t) { return 1.0; });
  MoeCall call;
  call.gate_up = device->LoadLayer(up).value();
  call.down = device->LoadLayer(down).value();
  call.x = x.view();
  call.y = y.view();
  call.topk_ids = ids.view();
  call.topk_weights = weights.view();
  call.activation = ActivationFunction::kReluSquared;
  call.total_experts = 2;
  const auto stream = device->CreateStream().value();
  const auto report = device->RunMoe(*stream, call);
  ASSERT_TRUE(report.ok()) << report.status();
  const auto dot = [](const StandardTensor& tensor, int64_t expert, int64_t row,
                      const std::vector<double>& values) {
    std::vector<double> w(values.size());
    DequantizeRow(tensor, expert, row, absl::MakeSpan(w));
    double sum = 0;
    for (size_t k = 0; k < w.size(); ++k) {
      sum += values[k] * Factor(expert, static_cast<int64_t>(k)) * w[k];
    }
    return sum;
  };
  for (int64_t expert = 0; expert < 2; ++expert) {
    std::vector<double> row;
    for (int64_t k = 0; k < 64; ++k) row.push_back(x.Get(expert, k));
    std::vector<double> middle;
    for (int64_t i = 0; i < 32; ++i) {
      const double positive = std::max(dot(up, expert, i, row), 0.0);
      middle.push_back(static_cast<float>(positive * positive));
    }
    for (int64_t n = 0; n < 12; ++n) {
      const double expected = dot(down, expert, n, middle);
      // One unit in the last place of the intermediate values and of y: sums in another order may round
      // a tie the other way.
      double magnitude = std::abs(expected);
      for (const double value : middle) magnitude += value * 64;  // |factor * weight| < 64
      EXPECT_NEAR(y.Get(expert, n), expected, magnitude * 0x1p-23) << expert << " " << n;
    }
  }
}

}  // namespace
}  // namespace gemmd
