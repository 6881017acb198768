#include "kernels/tune/synthetic_layer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <string>

#include "kernels/device/element.cuh"
#include "kernels/select/sm90_config.h"
#include "kernels/select/tuning_table.h"

namespace gemmd {
namespace {

QuantSpec Spec(const NumberFormat& weight, const NumberFormat& scale, int64_t group,
               const NumberFormat& activation = kNoFormat) {
  QuantSpec spec;
  spec.weight = weight;
  spec.scale = scale;
  spec.scale_block_k = group;
  spec.activation = activation;
  return spec;
}

std::vector<QuantSpec> Specs() {
  QuantSpec zeros = Spec(IntegerFormat(4), kBFloat16, 128);
  zeros.zero_point = ZeroPointKind::kInteger;
  QuantSpec float_zeros = zeros;
  float_zeros.zero_point = ZeroPointKind::kFloat;
  QuantSpec blocks = Spec(kFloat8E4M3, kFloat32, 128, kFloat8E4M3);
  blocks.scale_block_n = 128;
  QuantSpec nvfp4 = Spec(kFloat4E2M1, kFloat8E4M3, 16);
  nvfp4.secondary_scale = SecondaryScaleKind::kTensor;
  QuantSpec channel = Spec(IntegerFormat(8), kFloat32, 0, kInt8);
  channel.secondary_scale = SecondaryScaleKind::kChannel;
  return {Spec(IntegerFormat(4), kBFloat16, 128),
          zeros,
          float_zeros,
          blocks,
          nvfp4,
          channel,
          Spec(IntegerFormat(3), kFloat16, 32),
          Spec(IntegerFormat(2), kFloat32, 64),
          Spec(kFloat8E5M2, kBFloat16, 0),
          Spec(kFloat4E2M1, kFloat8E8M0, 32, kFloat8E4M3),
          Spec(FloatFormat(3, 2), kBFloat16, 128)};
}

TEST(SyntheticLayerTest, PacksEveryFormat) {
  for (const QuantSpec& spec : Specs()) {
    for (const LayerShape& shape : {LayerShape{1, 64, 256}, LayerShape{1, 300, 384},
                                    LayerShape{1, 1000, 288}}) {
      ASSERT_TRUE(SupportsSm90(spec, shape, "sm_90a").ok()) << SpecText(spec);
      const auto packed = MakeSyntheticWeights(spec, shape, 7);
      ASSERT_TRUE(packed.ok()) << SpecText(spec) << ": " << packed.status();
      const PackedLayout layout = Sm90PackingOf(spec, shape).layout;
      EXPECT_EQ(static_cast<int64_t>(packed->units.size()), layout.Bytes(shape.n, shape.k));
      EXPECT_TRUE(packed->channel_factor.empty() ||
                  packed->channel_factor.size() == static_cast<size_t>(shape.n) * sizeof(float));
    }
  }
}

// Rows repeated before packing give the same bytes as units repeated after it.
TEST(SyntheticLayerTest, RepeatingUnitsIsRepeatingRows) {
  constexpr int64_t kRows = 128;
  for (const QuantSpec& spec : Specs()) {
    for (const int64_t k : {256, 288}) {
      const LayerShape block = {1, kRows, k};
      const LayerShape whole = {1, 3 * kRows, k};
      const SyntheticTensors tensors = MakeSyntheticTensors(spec, block, 11);
      const auto packed = PackWeights(spec, block, tensors.view());
      ASSERT_TRUE(packed.ok()) << packed.status();
      SyntheticTensors repeated;
      for (int i = 0; i < 3; ++i) {
        const auto append = [](std::vector<std::byte>& to, const std::vector<std::byte>& from) {
          to.insert(to.end(), from.begin(), from.end());
        };
        append(repeated.codes, tensors.codes);
        append(repeated.scales, tensors.scales);
        append(repeated.zero_points, tensors.zero_points);
        if (i == 0 || spec.secondary_scale == SecondaryScaleKind::kChannel) {
          append(repeated.secondary_scales, tensors.secondary_scales);
        }
      }
      const auto expected = PackWeights(spec, whole, repeated.view());
      ASSERT_TRUE(expected.ok()) << expected.status();
      const PackedWeights got =
          RepeatRows(*packed, Sm90PackingOf(spec, block).layout, kRows, whole);
      EXPECT_TRUE(got.units == expected->units) << SpecText(spec) << " K = " << k;
      EXPECT_TRUE(got.channel_factor == expected->channel_factor) << SpecText(spec);
    }
  }
}

TEST(SyntheticLayerTest, TheSameSeedGivesTheSameBytesAnotherGivesOthers) {
  const LayerShape shape = {1, 64, 256};
  const auto first = MakeSyntheticWeights(Specs()[0], shape, 1);
  EXPECT_TRUE(first->units == MakeSyntheticWeights(Specs()[0], shape, 1)->units);
  EXPECT_FALSE(first->units == MakeSyntheticWeights(Specs()[0], shape, 2)->units);
}

TEST(SyntheticLayerTest, ElementsAreFiniteAndOfBothSigns) {
  for (const ElementType type :
       {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16,
        ElementType::kFloat8E4M3, ElementType::kFloat8E5M2, ElementType::kInt8}) {
    const std::vector<std::byte> bytes = RandomElements(type, 4096, 3);
    ASSERT_EQ(bytes.size(), 4096u * static_cast<size_t>(ElementBytes(type)));
    std::set<float> values;
    int negative = 0;
    for (int64_t i = 0; i < 4096; ++i) {
      const float value = device::LoadElement(type, bytes.data(), i);
      ASSERT_TRUE(std::isfinite(value));
      values.insert(value);
      negative += value < 0 ? 1 : 0;
    }
    EXPECT_GT(values.size(), 200u);
    EXPECT_GT(negative, 1500);
    EXPECT_LT(negative, 2600);
    if (ElementBytes(type) > 1) {
      EXPECT_LE(*values.rbegin(), 2);
      EXPECT_GE(*values.begin(), -2);
    }
  }
}

}  // namespace
}  // namespace gemmd
