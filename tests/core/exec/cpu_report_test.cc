// What the CPU device says of activations that a layer wants encoded (ActivationEncoding).
#include <gtest/gtest.h>

#include <memory>

#include "core/exec/cpu_device.h"
#include "core/quant/standard_tensor.h"
#include "tests/support/tensors.h"

namespace gemmd {
namespace {

using testing::Append;
using testing::HostMatrix;
using testing::Int4Spec;
using testing::RandomTensor;

struct Wish {
  const char* name;
  NumberFormat format;
  ActivationScaleKind scale;
  int64_t group;
  bool zero_points;
  NumberFormat group_scale;
};

StandardTensor LayerWith(const Wish& wish) {
  QuantSpec spec = Int4Spec();
  if (!wish.zero_points) {
    spec.activation = wish.format;
    spec.activation_scale = wish.scale;
    spec.activation_group = wish.group;
  }
  StandardTensor tensor = RandomTensor(spec, {1, 12, 64}, 5);
  tensor.encoding = {.format = wish.format,
                     .scale = wish.scale,
                     .group = wish.group,
                     .zero_points = wish.zero_points,
                     .group_scale = wish.group_scale};
  if (wish.scale == ActivationScaleKind::kStaticTensor) {
    Append(tensor.activation_scale, 0.375f);
    Append(tensor.activation_zero_point, int16_t{-17});
  }
  EXPECT_TRUE(Validate(tensor).ok()) << Validate(tensor);
  return tensor;
}

class CpuReportTest : public ::testing::TestWithParam<Wish> {
 protected:
  CallReport Run(const NumberFormat& type, bool with_scales) {
    HostMatrix x(type, 3, 64);
    HostMatrix y(kFloat32, 3, 12);
    const Wish& wish = GetParam();
    HostMatrix scales(kFloat32, 3, wish.group > 0 ? 64 / wish.group : 1);
    x.Fill([](int64_t m, int64_t k) { return static_cast<double>((m + k) % 5 - 2); });
    scales.Fill([](int64_t, int64_t) { return 0.5; });
    GemmCall call;
    call.layer = device_->LoadLayer(LayerWith(wish)).value();
    call.x = x.view();
    call.y = y.view();
    if (with_scales) call.x_scale = scales.view();
    const auto stream = device_->CreateStream().value();
    const auto report = device_->RunGemm(*stream, call);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.value_or(CallReport{});
  }

  const std::unique_ptr<Device> device_ = CreateCpuDevice({2});
};

INSTANTIATE_TEST_SUITE_P(
    Encodings, CpuReportTest,
    ::testing::Values(
        Wish{"static_zero_point", kInt8, ActivationScaleKind::kStaticTensor, 0, true, kNoFormat},
        Wish{"token_zero_points", kInt8, ActivationScaleKind::kDynamicToken, 0, true, kNoFormat},
        Wish{"mx", kFloat8E4M3, ActivationScaleKind::kDynamicGroup, 32, false, kFloat8E8M0}),
    [](const auto& info) { return info.param.name; });

TEST_P(CpuReportTest, HasNoReasonWhereTheRequestBringsWhatTheLayerWants) {
  const bool is_static = GetParam().scale == ActivationScaleKind::kStaticTensor;
  const CallReport report = Run(GetParam().format, !is_static);
  EXPECT_EQ(report.reason, "");
  EXPECT_EQ(report.activation_used, GetParam().format);
}

TEST_P(CpuReportTest, SaysWhyWiderActivationsAreUsedAsTheyAre) {
  for (const NumberFormat& type : {kBFloat16, kFloat32}) {
    const CallReport report = Run(type, false);
    EXPECT_EQ(report.activation_used, type);
    const char* wanted = GetParam().format == kInt8 ? "int8" : "e4m3";
    EXPECT_NE(report.reason.find(wanted), std::string::npos) << report.reason;
    EXPECT_NE(report.reason.find(GetParam().zero_points ? "zero points" : "its own way"),
              std::string::npos)
        << report.reason;
  }
}

TEST_P(CpuReportTest, AnExplanationPromisesWhatARequestOfWideActivationsGets) {
  const auto layer = device_->LoadLayer(LayerWith(GetParam())).value();
  const auto explained = device_->Explain(*layer, 3);
  ASSERT_TRUE(explained.ok()) << explained.status();
  EXPECT_FALSE(explained->choice.activation_used.present()) << "as it is";
  EXPECT_NE(explained->choice.reason.find(GetParam().zero_points ? "zero points" : "its own way"), std::string::npos)
      << explained->choice.reason;
}

}  // namespace
}  // namespace gemmd
