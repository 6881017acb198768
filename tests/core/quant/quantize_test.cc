// Quantization of weights: scale rules, bounds of the error, and what is refused.
#include "core/quant/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "core/quant/reference.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

std::vector<float> Normal(const LayerShape& shape, uint32_t seed, float deviation) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution(0, deviation);
  std::vector<float> weights(shape.experts * shape.n * shape.k);
  for (float& weight : weights) weight = distribution(random);
  return weights;
}

std::vector<float> Dequantize(const StandardTensor& tensor) {
  const auto [experts, n, k] = tensor.shape;
  std::vector<float> weights(experts * n * k);
  for (int64_t row = 0; row < experts * n; ++row) {
    DequantizeRowFloat32(tensor, row / n, row % n, absl::MakeSpan(weights).subspan(row * k, k));
  }
  return weights;
}

std::vector<NumberFormat> WeightFormats() {
  std::vector<NumberFormat> formats = {kFloat16, kBFloat16, kFloat32, kFloat8E4M3, kFloat8E5M2};
  for (int bits = 1; bits <= 8; ++bits) formats.push_back(IntegerFormat(bits));
  for (int exponent = 0; exponent <= 5; ++exponent) {
    for (int mantissa = 0; exponent + mantissa <= 7; ++mantissa) {
      if (exponent + mantissa >= 1) formats.push_back(FloatFormat(exponent, mantissa));
    }
  }
  return formats;
}

// Distance of neighbouring values at the top of the format, relative to its largest value; where the
// values are not scaled, relative to any value.
double TopStep(const NumberFormat& format) {
  if (format.bits > 8) return std::ldexp(1.0, -format.mantissa_bits);  // not scaled
  const double largest = LargestValue(format);
  if (format.kind == NumberKind::kInteger) return 1 / largest;
  const uint32_t top = EncodeNumber(format, largest);
  return top == 0 ? 1 : (largest - DecodeNumber(format, top - 1)) / largest;
}

TEST(QuantizeTest, StaysWithinHalfAStepOfTheLargestWeightForEveryTypeAndGranularity) {
  const LayerShape shape{2, 6, 40};
  const std::vector<float> weights = Normal(shape, 7, 0.05f);
  const float absmax = std::abs(*std::max_element(
      weights.begin(), weights.end(), [](float a, float b) { return std::abs(a) < std::abs(b); }));
  const std::pair<int64_t, int64_t> blocks[] = {{1, 0}, {1, 16}, {4, 32}, {0, 0}};
  for (const NumberFormat& weight : WeightFormats()) {
    for (const auto& [block_n, block_k] : blocks) {
      for (const NumberFormat& scale :
           {kFloat32, kFloat16, kBFloat16, kFloat8E4M3, kFloat8E5M2, kFloat8E8M0}) {
        for (const auto secondary : {SecondaryScaleKind::kNone, SecondaryScaleKind::kTensor,
                                     SecondaryScaleKind::kChannel}) {
          const bool narrow = scale.bits == 8 && scale.kind == NumberKind::kFloat;
          if (narrow && secondary == SecondaryScaleKind::kNone) continue;  // would underflow
          const QuantSpec spec{.weight = weight,
                               .scale = scale,
                               .scale_block_n = block_n,
                               .scale_block_k = block_k,
                               .secondary_scale = secondary};
          const auto tensor = Quantize(weights, shape, spec);
          ASSERT_TRUE(tensor.ok()) << tensor.status();
          // Half a step, what a scale rounded down cuts off at the top, twice that for a power of
          // two above the ideal scale; one bit has no positive value, the largest there is 0.
          const double rounding = scale == kFloat8E8M0 ? 0 : std::ldexp(1.0, -scale.mantissa_bits);
          const double spread = scale == kFloat8E8M0 ? 2 : 1.1 + rounding;  // 1.1: subnormal scales
          const double one_bit = weight == IntegerFormat(1) ? 1 : 0;
          const double bound = absmax * (TopStep(weight) / 2 * spread + rounding + one_bit + 1e-6);
          const std::vector<float> got = Dequantize(*tensor);
          double worst = 0;
          for (size_t i = 0; i < got.size(); ++i) {
            worst = std::max<double>(worst, std::abs(got[i] - weights[i]));
          }
          EXPECT_LE(worst, bound) << int{weight.bits} << " e" << int{weight.exponent_bits}
                                  << " scale " << int{scale.bits} << "/" << int{scale.exponent_bits}
                                  << " blocks " << block_n << "x" << block_k;
        }
      }
    }
  }
}

TEST(QuantizeTest, FindsIntegersAgainExactly) {
  const LayerShape shape{1, 3, 32};
  for (int bits = 2; bits <= 8; ++bits) {
    const int largest = (1 << (bits - 1)) - 1;
    std::vector<float> weights(shape.n * shape.k);
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i] = static_cast<float>(static_cast<int>(i % (2 * largest + 1)) - largest);
    }
    for (size_t i = 0; i < weights.size(); i += 8) weights[i] = static_cast<float>(largest);
    const QuantSpec spec{.weight = IntegerFormat(bits), .scale = kFloat16, .scale_block_k = 8};
    EXPECT_EQ(Dequantize(Quantize(weights, shape, spec).value()), weights) << bits;
  }
}

TEST(QuantizeTest, UsesTheWholeRangeWithZeroPoints) {
  const LayerShape shape{1, 1, 16};
  std::vector<float> weights(16);
  for (size_t i = 0; i < 16; ++i) weights[i] = 0.5f * static_cast<float>(i) - 2;
  QuantSpec spec{.weight = IntegerFormat(4),
                 .scale = kFloat32,
                 .scale_block_k = 16,
                 .zero_point = ZeroPointKind::kInteger};
  const auto integer = Quantize(weights, shape, spec);
  ASSERT_TRUE(integer.ok()) << integer.status();
  EXPECT_EQ(Dequantize(*integer), weights);
  EXPECT_EQ(static_cast<int>(integer->zero_points[0]), 4);
  spec.zero_point = ZeroPointKind::kFloat;
  EXPECT_EQ(Dequantize(Quantize(weights, shape, spec).value()), weights);
}

TEST(QuantizeTest, NeverOverflowsAtTheEdgesOfFloat32) {
  const LayerShape shape{1, 1, 32};
  for (const float size : {3.4e38f, -3.4e38f, 1e-38f, 1e-45f}) {
    const std::vector<float> weights(32, size);
    for (const NumberFormat& scale : {kFloat32, kFloat16, kBFloat16, kFloat8E4M3, kFloat8E8M0}) {
      for (const NumberFormat& weight : {kFloat4E2M1, kFloat8E4M3, kFloat16, IntegerFormat(4)}) {
        const QuantSpec spec{.weight = weight, .scale = scale, .scale_block_k = 32};
        const auto tensor = Quantize(weights, shape, spec);
        ASSERT_TRUE(tensor.ok()) << tensor.status();
        for (const float value : Dequantize(*tensor)) {
          EXPECT_TRUE(std::isfinite(value)) << size << " " << int{scale.bits};
        }
      }
    }
  }
}

// Scales that are rounded up, scales of scales and zero points, where the next larger number is infinite.
TEST(QuantizeTest, NeverOverflowsWithSecondaryScalesAndZeroPoints) {
  const LayerShape shape{1, 2, 32};
  for (const auto& [low, high] : std::vector<std::pair<float, float>>{
           {-3.4028235e38f, 3.4028235e38f}, {-3.3e38f, 1}, {0, 3.4028235e38f}, {-1e-45f, 3.3e38f}}) {
    std::vector<float> weights(64, low);
    for (size_t i = 0; i < weights.size(); i += 3) weights[i] = high;
    for (const NumberFormat& weight : WeightFormats()) {
      for (const NumberFormat& scale : {kFloat32, kFloat16, kBFloat16, kFloat8E4M3, kFloat8E5M2, kFloat8E8M0}) {
        for (const auto secondary : {SecondaryScaleKind::kNone, SecondaryScaleKind::kTensor}) {
          for (const auto zero : {ZeroPointKind::kNone, ZeroPointKind::kInteger, ZeroPointKind::kFloat}) {
            if (zero != ZeroPointKind::kNone && weight.kind != NumberKind::kInteger) continue;
            const QuantSpec spec{
                .weight = weight, .scale = scale, .scale_block_k = 32, .zero_point = zero, .secondary_scale = secondary};
            const auto tensor = Quantize(weights, shape, spec);
            ASSERT_TRUE(tensor.ok()) << tensor.status();
            for (const float value : Dequantize(*tensor)) {
              ASSERT_TRUE(std::isfinite(value))
                  << low << " to " << high << " as " << int{weight.bits} << "/" << int{weight.exponent_bits}
                  << " bits, scale " << int{scale.bits} << "/" << int{scale.exponent_bits};
            }
          }
        }
      }
    }
  }
}

TEST(QuantizeTest, RoundsPowersOfTwoUpSoThatNothingSaturates) {
  const LayerShape shape{1, 1, 32};
  std::vector<float> weights(32, 0.25f);
  weights[0] = 1.9f;  // 1.9 / 6 is above 2^-2
  const QuantSpec spec{.weight = kFloat4E2M1, .scale = kFloat8E8M0, .scale_block_k = 32};
  EXPECT_EQ(static_cast<int>(Quantize(weights, shape, spec)->scales[0]), 126);
  EXPECT_EQ(static_cast<int>(Quantize(weights, shape, spec, ScaleRule::kOcp)->scales[0]), 125);
}

TEST(QuantizeTest, SaysWhichWeightIsNotFinite) {
  const LayerShape shape{1, 2, 4};
  std::vector<float> weights(8, 1.0f);
  weights[6] = std::nanf("");
  const auto tensor = Quantize(weights, shape, {.weight = IntegerFormat(4), .scale = kFloat32});
  EXPECT_EQ(ReasonOf(tensor.status()), "NOT_FINITE");
  EXPECT_THAT(std::string(tensor.status().message()), ::testing::HasSubstr("weight of row 1, column 2 is nan"));
  const auto stack = Quantize(weights, {2, 1, 4}, {.weight = IntegerFormat(4), .scale = kFloat32});
  EXPECT_THAT(std::string(stack.status().message()), ::testing::HasSubstr("weight of expert 1, row 0, column 2 is nan"));
}

TEST(QuantizeTest, RefusesWhatWeightsDoNotTell) {
  const LayerShape shape{1, 2, 4};
  const std::vector<float> weights(8, 1.0f);
  const QuantSpec plain{.weight = IntegerFormat(4), .scale = kFloat32};
  QuantSpec spec = plain;
  spec.has_group_index = true;
  EXPECT_EQ(ReasonOf(Quantize(weights, shape, spec).status()), "UNSUPPORTED_SPEC");
  spec = plain;
  spec.bias = kFloat32;
  EXPECT_EQ(ReasonOf(Quantize(weights, shape, spec).status()), "UNSUPPORTED_SPEC");
  spec = plain;
  spec.scale = kNoFormat;
  spec.zero_point = ZeroPointKind::kInteger;
  EXPECT_EQ(ReasonOf(Quantize(weights, shape, spec).status()), "BAD_SPEC");
  EXPECT_EQ(ReasonOf(Quantize(weights, {1, 2, 5}, plain).status()), "SHAPE_MISMATCH");
  EXPECT_EQ(ReasonOf(Quantize(weights, {int64_t{1} << 62, 8, 8}, plain).status()),
            "SHAPE_MISMATCH");
}

}  // namespace
}  // namespace gemmd
