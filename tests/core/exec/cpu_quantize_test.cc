// The CPU device quantizes x as core/quant/activations says: the same bits as a request that brings those
// codes and scales itself.
#include "core/exec/cpu_quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>

#include "core/exec/cpu_device.h"
#include "core/quant/activations.h"
#include "tests/support/tensors.h"

namespace gemmd {
namespace {

using testing::HostMatrix;
using testing::Int4Spec;
using testing::Random;
using testing::RandomTensor;

constexpr int64_t kColumns = 150;

struct Kind {
  std::string name;
  NumberFormat activation;
  ActivationScaleKind scale;
  int64_t group = 0;
};

StandardTensor Tensor(const Kind& kind) {
  QuantSpec spec = Int4Spec();
  spec.activation = kind.activation;
  spec.activation_scale = kind.scale;
  spec.activation_group = kind.group;
  return RandomTensor(spec, {1, 21, kColumns}, 5);
}

float StaticScaleOf(const StandardTensor& tensor) {
  float scale = 0;
  if (!tensor.activation_scale.empty()) {
    std::memcpy(&scale, tensor.activation_scale.data(), sizeof(scale));
  }
  return scale;
}

class CpuQuantizeTest : public ::testing::TestWithParam<Kind> {
 protected:
  CpuQuantizeTest() : device_(CreateCpuDevice({2})), stream_(device_->CreateStream().value()) {}

  CallReport Run(const std::shared_ptr<DeviceLayer>& layer, HostMatrix& x, HostMatrix* x_scale,
                 HostMatrix& y, bool batch_invariant) {
    GemmCall call;
    call.layer = layer;
    call.x = x.view();
    call.y = y.view();
    if (x_scale != nullptr) call.x_scale = x_scale->view();
    call.batch_invariant = batch_invariant;
    const auto report = device_->RunGemm(*stream_, call);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? *report : CallReport{};
  }

  const std::unique_ptr<Device> device_;
  const std::unique_ptr<Stream> stream_;
};

INSTANTIATE_TEST_SUITE_P(
    Kinds, CpuQuantizeTest,
    ::testing::Values(Kind{"e4m3_token", kFloat8E4M3, ActivationScaleKind::kDynamicToken},
                      Kind{"e5m2_token", kFloat8E5M2, ActivationScaleKind::kDynamicToken},
                      Kind{"int8_token", kInt8, ActivationScaleKind::kDynamicToken},
                      Kind{"e4m3_group", kFloat8E4M3, ActivationScaleKind::kDynamicGroup, 64},
                      Kind{"int8_group", kInt8, ActivationScaleKind::kDynamicGroup, 100},
                      Kind{"e4m3_static", kFloat8E4M3, ActivationScaleKind::kStaticTensor},
                      Kind{"int8_static", kInt8, ActivationScaleKind::kStaticTensor}),
    [](const auto& info) { return info.param.name; });

TEST_P(CpuQuantizeTest, GivesTheBitsOfCodesAndScalesInTheRequest) {
  const Kind& kind = GetParam();
  const StandardTensor tensor = Tensor(kind);
  const auto layer = device_->LoadLayer(tensor).value();
  const ActivationScaling scaling = ScalingOf(tensor.spec, StaticScaleOf(tensor));
  const int64_t groups = kind.group > 0 ? (kColumns + kind.group - 1) / kind.group : 1;
  const bool is_static = kind.scale == ActivationScaleKind::kStaticTensor;
  for (const NumberFormat& type : {kFloat16, kBFloat16, kFloat32}) {
    for (const bool batch_invariant : {false, true}) {
      constexpr int64_t kRows = 19;
      HostMatrix x(type, kRows, kColumns, /*padding=*/3);
      x.Fill([](int64_t row, int64_t column) {
        return row == 4 ? 0 : std::sin(static_cast<double>(row * 151 + column)) * (1 + row);
      });
      HostMatrix codes(kind.activation, kRows, kColumns);
      HostMatrix scales(kFloat32, kRows, groups);
      for (int64_t row = 0; row < kRows; ++row) {
        std::vector<float> values;
        for (int64_t k = 0; k < kColumns; ++k) values.push_back(static_cast<float>(x.Get(row, k)));
        const QuantizedRow quantized = QuantizeActivations(values, scaling);
        for (int64_t k = 0; k < kColumns; ++k) {
          codes.Set(row, k, quantized.elements[static_cast<size_t>(k)]);
        }
        for (int64_t g = 0; g < groups; ++g) {
          scales.Set(row, g, quantized.scales[static_cast<size_t>(g)]);
        }
      }
      HostMatrix expected(kFloat32, kRows, 21);
      HostMatrix got(kFloat32, kRows, 21);
      Run(layer, codes, is_static ? nullptr : &scales, expected, batch_invariant);
      const CallReport report = Run(layer, x, nullptr, got, batch_invariant);
      EXPECT_EQ(report.activation_used, kind.activation);
      EXPECT_EQ(device_->Explain(*layer, kRows)->choice.activation_used, report.activation_used);
      EXPECT_EQ(report.reason, "");
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t n = 0; n < 21; ++n) {
          ASSERT_EQ(got.Code(row, n), expected.Code(row, n)) << row << ", " << n;
        }
      }
    }
  }
}

TEST_P(CpuQuantizeTest, ANanStaysInItsRow) {
  const StandardTensor tensor = Tensor(GetParam());
  const auto layer = device_->LoadLayer(tensor).value();
  HostMatrix x(kBFloat16, 3, kColumns);
  HostMatrix y(kFloat32, 3, 21);
  Random random(1);
  x.FillRandom(random);
  x.Set(1, 7, std::nan(""));
  Run(layer, x, nullptr, y, false);
  for (int64_t n = 0; n < 21; ++n) {
    EXPECT_TRUE(std::isfinite(y.Get(0, n)));
    EXPECT_TRUE(std::isnan(y.Get(1, n)));
    EXPECT_TRUE(std::isfinite(y.Get(2, n)));
  }
}

TEST(WhyNotQuantizedTest, NamesWhatTheLayerLacks) {
  StandardTensor tensor = Tensor({"", kFloat8E4M3, ActivationScaleKind::kDynamicToken});
  EXPECT_EQ(WhyNotQuantized(tensor), "");
  EXPECT_TRUE(QuantizesX(tensor, kBFloat16));
  EXPECT_FALSE(QuantizesX(tensor, kFloat8E4M3)) << "it is quantized already";
  tensor.spec.activation_scale = ActivationScaleKind::kNone;
  EXPECT_NE(WhyNotQuantized(tensor), "");
  tensor.spec.activation = kFloat4E2M1;
  EXPECT_NE(WhyNotQuantized(tensor), "");
  tensor.spec.activation = kNoFormat;
  EXPECT_FALSE(QuantizesX(tensor, kBFloat16));
}

}  // namespace
}  // namespace gemmd
