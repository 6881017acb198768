#include "kernels/select/sm90_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/status.h"
#include "kernels/select/sm90_choice.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;

QuantSpec Spec(const NumberFormat& scale, int64_t group) {
  QuantSpec spec;
  spec.weight = IntegerFormat(4);
  spec.scale = scale;
  spec.scale_block_k = group;
  return spec;
}

std::string WhyNot(const QuantSpec& spec, const LayerShape& shape = {1, 64, 256},
                   const std::string& architecture = "sm_90a") {
  const absl::Status status = SupportsSm90(spec, shape, architecture);
  EXPECT_EQ(status.ok() ? "NO_KERNEL" : ReasonOf(status), "NO_KERNEL");
  return std::string(status.message());
}

TEST(Sm90ConfigTest, SaysWhatTheKernelDoesNotTake) {
  EXPECT_EQ(WhyNot(Spec(kFloat16, 128)), "");
  EXPECT_EQ(WhyNot(Spec(kFloat16, 48)), "");
  EXPECT_EQ(WhyNot(Spec(kFloat16, 0)), "");
  EXPECT_THAT(WhyNot(Spec(kFloat16, 20)), HasSubstr("groups of 20 columns"));
  EXPECT_EQ(WhyNot(Spec(kFloat16, 300)), "") << "one group over all of K";
  EXPECT_THAT(WhyNot(Spec(kFloat16, 128), {1, 64, 256}, "sm_90"), HasSubstr("sm_90"));
  EXPECT_THAT(WhyNot(Spec(kFloat16, 128), {1, 64, 256}, "sm_100a"), HasSubstr("sm_100a"));
  EXPECT_THAT(WhyNot(Spec(kFloat16, 128), {8, 64, 256}), HasSubstr("8 experts"));
  QuantSpec spec = Spec(kFloat16, 128);
  spec.has_group_index = true;
  EXPECT_THAT(WhyNot(spec), HasSubstr("group index"));
  spec = Spec(kFloat16, 128);
  spec.zero_point = ZeroPointKind::kFloat;
  EXPECT_EQ(WhyNot(spec), "");
  spec.activation = kInt8;
  EXPECT_THAT(WhyNot(spec), HasSubstr("floating-point zero points with 8-bit activations"));
  spec.activation = kNoFormat;
  spec.weight = kFloat4E2M1;
  EXPECT_THAT(WhyNot(spec), HasSubstr("weights with floating-point zero points"));
  spec = Spec(kNoFormat, 0);
  spec.weight = kFloat32;
  EXPECT_THAT(WhyNot(spec), HasSubstr("f32 weights"));
}

TEST(Sm90ConfigTest, UnquantizedWeightsTakeTheirOwnTypeOfX) {
  QuantSpec spec = Spec(kNoFormat, 0);
  spec.weight = kFloat16;
  EXPECT_EQ(WhyNot(spec), "");
  EXPECT_EQ(Sm90XTypes(spec), std::vector<ElementType>{ElementType::kFloat16});
  spec.weight = kBFloat16;
  EXPECT_EQ(WhyNot(spec), "");
  EXPECT_EQ(Sm90XTypes(spec), std::vector<ElementType>{ElementType::kBFloat16});
}

QuantSpec SpecWith(const NumberFormat& weight, const NumberFormat& activation) {
  QuantSpec spec = Spec(kBFloat16, 128);
  spec.weight = weight;
  spec.activation = activation;
  return spec;
}

TEST(Sm90ConfigTest, SaysWhatEightBitActivationsDoNotTake) {
  const LayerShape shape = {1, 64, 512};
  for (int bits = 1; bits <= 8; ++bits) {
    EXPECT_EQ(WhyNot(SpecWith(IntegerFormat(bits), kInt8), shape), "") << bits;
    EXPECT_EQ(WhyNot(SpecWith(IntegerFormat(bits), kFloat8E4M3), shape).empty(), bits <= 4) << bits;
  }
  EXPECT_EQ(WhyNot(SpecWith(kFloat4E2M1, kInt8), shape), "");
  EXPECT_EQ(WhyNot(SpecWith(kFloat8E5M2, kFloat8E4M3), shape), "");
  EXPECT_THAT(WhyNot(SpecWith(FloatFormat(3, 2), kInt8), shape), HasSubstr("int8 activations"));
  EXPECT_THAT(WhyNot(SpecWith(FloatFormat(3, 4), kFloat8E4M3), shape), HasSubstr("e3m4 weights"));
  // Its largest code is e4m3's NaN.
  EXPECT_NE(WhyNot(SpecWith(FloatFormat(4, 3), kFloat8E4M3), shape), "");
  QuantSpec spec = SpecWith(IntegerFormat(4), kFloat8E4M3);
  spec.zero_point = ZeroPointKind::kInteger;
  EXPECT_THAT(WhyNot(spec, shape), HasSubstr("with zero points"));
  spec = SpecWith(IntegerFormat(4), kInt8);
  spec.scale_block_k = 16;
  EXPECT_THAT(WhyNot(spec, shape), HasSubstr("groups of 16 columns"));
  spec.scale_block_k = 32;
  EXPECT_EQ(WhyNot(spec, shape), "");
  spec.zero_point = ZeroPointKind::kInteger;
  EXPECT_THAT(WhyNot(spec, shape), HasSubstr("zero points of 32 columns"));
  spec = SpecWith(kFloat8E4M3, kFloat8E4M3);
  spec.activation_scale = ActivationScaleKind::kDynamicGroup;
  spec.activation_group = 64;
  EXPECT_THAT(WhyNot(spec, shape), HasSubstr("activation groups of 64 columns"));
  spec.activation_group = 256;
  EXPECT_EQ(WhyNot(spec, shape), "");
  EXPECT_TRUE(Sm90TakesXScales(spec, shape));
  EXPECT_FALSE(Sm90TakesXScales(spec, {1, 64, 256})) << "one group over all of K";
  spec = SpecWith(IntegerFormat(8), kInt8);
  spec.scale_block_k = 0;
  EXPECT_THAT(WhyNot(spec, {1, 64, (1 << 17) + 128}), HasSubstr("int8 sums over 131200 columns"));
}

TEST(Sm90ConfigTest, ScalesWeightsOnlyWhereThatIsExact) {
  const auto scales_weights = [](const NumberFormat& weight, const NumberFormat& scale,
                                 ElementType x_type) {
    QuantSpec spec = Spec(scale, 32);
    spec.weight = weight;
    return ChooseSm90(spec, {1, 256, 512}, x_type).front().config.scale_on_weights;
  };
  EXPECT_TRUE(scales_weights(kFloat4E2M1, kFloat8E8M0, ElementType::kBFloat16));
  EXPECT_TRUE(scales_weights(kFloat4E2M1, kFloat8E4M3, ElementType::kBFloat16));
  EXPECT_TRUE(scales_weights(kFloat4E2M1, kFloat8E4M3, ElementType::kFloat16));
  EXPECT_FALSE(scales_weights(kFloat4E2M1, kFloat8E8M0, ElementType::kFloat16)) << "range";
  EXPECT_FALSE(scales_weights(kFloat4E2M1, kBFloat16, ElementType::kBFloat16)) << "mantissa";
  EXPECT_FALSE(scales_weights(kFloat8E4M3, kFloat8E8M0, ElementType::kBFloat16)) << "2^-136";
  EXPECT_TRUE(scales_weights(kFloat8E4M3, kFloat8E4M3, ElementType::kBFloat16));
  EXPECT_FALSE(scales_weights(kFloat8E4M3, kFloat8E4M3, ElementType::kFloat16)) << "448 * 448";
  EXPECT_FALSE(scales_weights(IntegerFormat(4), kFloat8E4M3, ElementType::kBFloat16));
}

}  // namespace
}  // namespace gemmd
