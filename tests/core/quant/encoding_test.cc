// Activations that QuantSpec has no words for: zero points, and group scales of other types.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/checkpoint/safetensors.h"
#include "core/quant/activations.h"
#include "core/quant/combine.h"
#include "core/quant/slice.h"
#include "kernels/base/status.h"
#include "tests/support/random_tensor.h"

namespace gemmd {
namespace {

using testing::Append;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::RandomTensor;

constexpr LayerShape kEncodingShape{1, 4, 64};
constexpr auto kGroups = ActivationScaleKind::kDynamicGroup;
constexpr auto kStatic = ActivationScaleKind::kStaticTensor;

StandardTensor Grouped(const NumberFormat& element, const NumberFormat& scale, int64_t group) {
  const QuantSpec spec{.weight = kFloat4E2M1,
                       .scale = kFloat32,
                       .activation = element,
                       .activation_scale = kGroups,
                       .activation_group = group};
  StandardTensor tensor = RandomTensor(spec, kEncodingShape, 3);
  tensor.encoding = {.format = element,
                     .scale = kGroups,
                     .group = group,
                     .zero_points = false,
                     .group_scale = scale};
  return tensor;
}

StandardTensor Asymmetric(float scale, int16_t zero_point) {
  StandardTensor tensor =
      RandomTensor({.weight = kFloat4E2M1, .scale = kFloat32}, kEncodingShape, 3);
  tensor.encoding = {
      .format = kInt8, .scale = kStatic, .group = 0, .zero_points = true, .group_scale = kNoFormat};
  Append(tensor.activation_scale, scale);
  Append(tensor.activation_zero_point, zero_point);
  return tensor;
}

std::vector<float> RoundTrip(const StandardTensor& tensor, const std::vector<float>& x) {
  const ActivationScaling scaling = ScalingOf(tensor);
  return DequantizeActivations(QuantizeActivations(x, scaling), scaling);
}

// round(x / 0.5) + 3 within [-128, 127], by hand.
TEST(EncodingTest, StaticZeroPointsShiftTheRange) {
  const StandardTensor tensor = Asymmetric(0.5f, 3);
  ASSERT_TRUE(Validate(tensor).ok()) << Validate(tensor);
  const QuantizedRow row = QuantizeActivations({0, 1, -1, 1.25f, 1000, -1000}, ScalingOf(tensor));
  EXPECT_THAT(row.elements, ElementsAre(3, 5, 1, 6, 127, -128));  // 2.5 + 3 ties to the even 6
  EXPECT_THAT(row.zero_points, ElementsAre(3));
  EXPECT_THAT(RoundTrip(tensor, {0, 1, -1, 1.25f, 1000, -1000}),
              ElementsAre(0, 1, -1, 1.5f, 62, -65.5f));
}

// Scales of MX groups are powers of two that let nothing saturate: 2^ceil(log2(largest / 6)).
TEST(EncodingTest, ExponentScalesOfGroups) {
  const StandardTensor tensor = Grouped(kFloat4E2M1, kFloat8E8M0, 2);
  ASSERT_TRUE(Validate(tensor).ok()) << Validate(tensor);
  const QuantizedRow row =
      QuantizeActivations({6, 1, 7, -3.5f, 0.375f, 0.1f, 0, 0}, ScalingOf(tensor));
  EXPECT_THAT(row.scales, ElementsAre(1, 2, 0.0625f, 1));
  EXPECT_THAT(row.elements, ElementsAre(6, 1, 4, -2, 6, 1.5f, 0, 0));
}

// Values of compressed-tensors' own code: e4m3 scales below a global one.
TEST(EncodingTest, Nvfp4GroupsEqualCompressedTensors) {
  const std::string name = "act_quant_compressed_tensors.safetensors";
  const auto file = SafetensorsFile::Open(
      std::filesystem::canonical(std::string(GEMMD_TEST_DATA "/activations/") + name), name);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto get = [&](const char* tensor) {
    const Buffer bytes = (*file)->Read(*(*file)->Find(tensor)).value();
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  StandardTensor tensor = Grouped(kFloat4E2M1, kFloat8E4M3, 16);
  Append(tensor.activation_global_scale, get("nvfp4_local.global_scale")[0]);
  ASSERT_TRUE(Validate(tensor).ok()) << Validate(tensor);
  EXPECT_EQ(RoundTrip(tensor, get("x")), get("nvfp4_local.f32.dequant"));
}

TEST(EncodingTest, AddsToTheSpecOrStandsAlone) {
  const auto message = [](const StandardTensor& tensor) {
    EXPECT_EQ(ReasonOf(Validate(tensor)), "BAD_SPEC") << Validate(tensor);
    return std::string(Validate(tensor).message());
  };
  StandardTensor tensor = Grouped(kFloat4E2M1, kFloat8E8M0, 16);
  tensor.encoding.group = 32;
  EXPECT_THAT(message(tensor), HasSubstr("contradicts"));
  tensor = Grouped(kFloat4E2M1, kFloat8E5M2, 16);
  EXPECT_THAT(message(tensor), HasSubstr("none of e8m0, e4m3"));
  tensor = Asymmetric(1, 0);
  tensor.spec.activation = kInt8;
  EXPECT_THAT(message(tensor), HasSubstr("encoding alone"));
  tensor = Asymmetric(1, 0);
  tensor.encoding.format = kFloat8E4M3;
  EXPECT_THAT(message(tensor), HasSubstr("need integers"));
  tensor = Asymmetric(1, 0);
  tensor.encoding.scale = ActivationScaleKind::kNone;
  EXPECT_THAT(message(tensor), HasSubstr("need a scale"));
  tensor = Asymmetric(1, 0);
  tensor.encoding.group_scale = kFloat8E8M0;
  EXPECT_THAT(message(tensor), HasSubstr("float32 scales"));
  tensor.encoding = {};
  tensor.encoding.group = 4;
  EXPECT_THAT(message(tensor), HasSubstr("no format"));
  tensor = Asymmetric(1, 0);
  tensor.activation_zero_point.clear();
  EXPECT_EQ(ReasonOf(Validate(tensor)), "SHAPE_MISMATCH");
  tensor = Grouped(kFloat4E2M1, kFloat8E4M3, 16);  // without its global scale
  EXPECT_EQ(ReasonOf(Validate(tensor)), "SHAPE_MISMATCH");
}

TEST(EncodingTest, IsPartOfTheDigest) {
  StandardTensor float32 = Grouped(kFloat4E2M1, kFloat8E8M0, 16);
  const std::string exponents = Digest(float32);
  float32.encoding = {};
  EXPECT_NE(Digest(float32), exponents);
  EXPECT_NE(Digest(Asymmetric(1, 0)), Digest(Asymmetric(1, 1)));
}

// Rows of q and k see the same x: one range for both.
TEST(EncodingTest, PartsOfALayerShareIt) {
  EXPECT_EQ(ReasonOf(ConcatenateRows({Asymmetric(1, 0), Asymmetric(1, 1)}).status()),
            "PARTS_DIFFER");
  EXPECT_EQ(ReasonOf(ConcatenateRows({Asymmetric(1, 0), Asymmetric(2, 0)}).status()),
            "PARTS_DIFFER");
  const auto joined = ConcatenateRows({Asymmetric(2, 5), Asymmetric(2, 5)});
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_TRUE(Validate(*joined).ok()) << Validate(*joined);
  StandardTensor wide = Grouped(kFloat4E2M1, kFloat8E4M3, 16);
  StandardTensor narrow = wide;
  Append(wide.activation_global_scale, 100.0f);
  Append(narrow.activation_global_scale, 400.0f);
  const auto both = ConcatenateRows({narrow, wide});
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(ScalingOf(*both).global_scale, 100);
}

TEST(EncodingTest, SlicesKeepIt) {
  const StandardTensor tensor = Asymmetric(0.5f, 3);
  const auto part = Slice(tensor, LayerSlice{.experts = {}, .rows = {1, 3}, .columns = {8, 24}});
  ASSERT_TRUE(part.ok()) << part.status();
  ASSERT_TRUE(Validate(*part).ok()) << Validate(*part);
  EXPECT_EQ(ScalingOf(*part).static_zero_point, 3);
}

}  // namespace
}  // namespace gemmd
