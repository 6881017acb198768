// Scales and codes against an encoder in double precision that tries every code, on weights of every exponent that
// float32 has: nothing may be lost to a quotient that underflows, a scale that is subnormal, or a product at either
// end.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/quant/bit_row.h"
#include "core/quant/quantize.h"
#include "core/quant/reference.h"

namespace gemmd {
namespace {

constexpr int64_t kGroupColumns = 16;
constexpr int64_t kGroupCount = 8;
constexpr double kLargestFloat = std::numeric_limits<float>::max();

std::string NameOf(const QuantSpec& spec) {
  return absl::StrCat(spec.weight.bits, "/", spec.weight.exponent_bits, " bits, scale ", spec.scale.bits, "/",
                      spec.scale.exponent_bits, ", zero point ", static_cast<int>(spec.zero_point), ", secondary ",
                      static_cast<int>(spec.secondary_scale));
}

std::vector<QuantSpec> CornerSpecs() {
  std::vector<QuantSpec> specs;
  for (const NumberFormat& weight : {IntegerFormat(2), IntegerFormat(4), IntegerFormat(8), kFloat4E2M1, kFloat8E4M3,
                                     kFloat8E5M2, FloatFormat(3, 2), FloatFormat(0, 3)}) {
    for (const NumberFormat& scale : {kFloat32, kBFloat16, kFloat16, kFloat8E4M3, kFloat8E5M2, kFloat8E8M0}) {
      for (const auto zero : {ZeroPointKind::kNone, ZeroPointKind::kInteger, ZeroPointKind::kFloat}) {
        if (zero != ZeroPointKind::kNone && weight.kind != NumberKind::kInteger) continue;
        for (const auto secondary : {SecondaryScaleKind::kNone, SecondaryScaleKind::kTensor}) {
          specs.push_back({.weight = weight,
                           .scale = scale,
                           .scale_block_k = kGroupColumns,
                           .zero_point = zero,
                           .secondary_scale = secondary});
        }
      }
    }
  }
  return specs;
}

// Groups whose largest weights have exponents near `exponent`; weights of a group up to 2^8 apart, of either sign or
// of one.
std::vector<float> Weights(int exponent, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> significand(1, 2);
  std::vector<float> weights;
  for (int64_t group = 0; group < kGroupCount; ++group) {
    const int of_group = exponent - static_cast<int>(random() % 12);
    const int sign = static_cast<int>(random() % 3) - 1;
    for (int64_t i = 0; i < kGroupColumns; ++i) {
      const double value = std::ldexp(significand(random), of_group - static_cast<int>(random() % 9));
      const bool negative = sign == 0 ? random() % 2 != 0 : sign < 0;
      weights.push_back(static_cast<float>(std::min(value, kLargestFloat) * (negative ? -1 : 1)));
    }
  }
  return weights;
}

struct Group {
  double scale = 0;  // with the secondary one
  double zero_point = 0;
  std::vector<double> weights;
  std::vector<double> decoded;
};

template <typename T>
T Load(const Buffer& buffer, int64_t index) {
  T value;
  std::memcpy(&value, buffer.data() + index * sizeof(T), sizeof(T));
  return value;
}

double ScaleAt(const StandardTensor& tensor, int64_t index) {
  const int bits = tensor.spec.scale.bits;
  const uint32_t code = bits == 8    ? Load<uint8_t>(tensor.scales, index)
                        : bits == 16 ? Load<uint16_t>(tensor.scales, index)
                                     : Load<uint32_t>(tensor.scales, index);
  return DecodeNumber(tensor.spec.scale, code);
}

std::vector<Group> GroupsOf(const StandardTensor& tensor, const std::vector<float>& weights) {
  std::vector<double> decoded(weights.size());
  DequantizeRow(tensor, 0, 0, absl::MakeSpan(decoded));
  const bool has_secondary = tensor.spec.secondary_scale != SecondaryScaleKind::kNone;
  const double secondary = has_secondary ? Load<float>(tensor.secondary_scales, 0) : 1;
  std::vector<Group> groups(kGroupCount);
  for (int64_t i = 0; i < kGroupCount; ++i) {
    Group& group = groups[i];
    group.scale = ScaleAt(tensor, i) * secondary;
    const bool integer = tensor.spec.weight.kind == NumberKind::kInteger;
    group.zero_point = integer ? 1 << (tensor.spec.weight.bits - 1) : 0;
    if (tensor.spec.zero_point == ZeroPointKind::kInteger) group.zero_point = Load<int16_t>(tensor.zero_points, i);
    if (tensor.spec.zero_point == ZeroPointKind::kFloat) group.zero_point = Load<float>(tensor.zero_points, i);
    group.weights.assign(weights.begin() + i * kGroupColumns, weights.begin() + (i + 1) * kGroupColumns);
    group.decoded.assign(decoded.begin() + i * kGroupColumns, decoded.begin() + (i + 1) * kGroupColumns);
  }
  return groups;
}

// What codes stand for before the zero point; symmetric integers leave the lowest out.
std::vector<double> NumbersOf(const QuantSpec& spec) {
  const bool symmetric = spec.weight.kind == NumberKind::kInteger && spec.zero_point == ZeroPointKind::kNone;
  std::vector<double> numbers;
  for (uint32_t code = symmetric ? 1 : 0; code < 1u << spec.weight.bits; ++code) {
    const double number = DecodeNumber(spec.weight, code);
    if (std::isfinite(number)) numbers.push_back(number);
  }
  return numbers;
}

// The smallest error that a code gives, of those that stand for a number of float32.
double LeastError(const std::vector<double>& numbers, const Group& group, double weight) {
  double least = std::numeric_limits<double>::infinity();
  for (const double number : numbers) {
    const double value = (number - group.zero_point) * group.scale;
    if (std::abs(value) <= kLargestFloat) least = std::min(least, std::abs(value - weight));
  }
  return least;
}

// `check` for groups of every spec; every exponent at both ends, some between.
template <typename Check>
void ForEveryExponent(const Check& check) {
  for (const QuantSpec& spec : CornerSpecs()) {
    const std::vector<double> numbers = NumbersOf(spec);
    for (int exponent = -149; exponent <= 127; exponent += exponent > -110 && exponent < 100 ? 23 : 1) {
      const std::vector<float> weights = Weights(exponent, static_cast<uint32_t>(exponent + 1000));
      const auto tensor = Quantize(weights, {1, 1, kGroupColumns * kGroupCount}, spec);
      ASSERT_TRUE(tensor.ok()) << tensor.status();
      SCOPED_TRACE(absl::StrCat(NameOf(spec), ", weights up to 2^", exponent));
      for (const Group& group : GroupsOf(*tensor, weights)) {
        check(spec, numbers, group);
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

// The rules divide by fl32(scale * secondary), which has few bits below 2^-126, and round the quotient to float32: of
// two codes that are nearly as near either may be taken.
TEST(ScaleCornersTest, CodesAreTheNearestOfAllUnderTheirScale) {
  ForEveryExponent([](const QuantSpec&, const std::vector<double>& numbers, const Group& group) {
    const double factor = static_cast<float>(group.scale);
    ASSERT_GT(factor, 0);
    const double rounding = std::max(factor / group.scale, group.scale / factor) - 1;
    for (size_t i = 0; i < group.weights.size(); ++i) {
      const double error = std::abs(group.decoded[i] - group.weights[i]);
      const double nearly =
          1e-4 * group.scale + 2 * rounding * (std::abs(group.weights[i]) + group.zero_point * group.scale);
      ASSERT_LE(error, LeastError(numbers, group, group.weights[i]) + nearly)
          << group.weights[i] << " as " << group.decoded[i] << ", scale " << group.scale << ", zero point "
          << group.zero_point;
    }
  });
}

// absmax / largest value, or the span, in double precision.
double IdealOf(const QuantSpec& spec, const Group& group) {
  double low = 0;
  double high = 0;
  for (const double weight : group.weights) {
    low = std::min(low, weight);
    high = std::max(high, weight);
  }
  if (spec.zero_point != ZeroPointKind::kNone) return (high - low) / ((1 << spec.weight.bits) - 1);
  return std::max(-low, high) / LargestValue(spec.weight);
}

// Of scales without a second one: not so small that the top saturates by more than the type's precision, unless the
// type ends; and the smallest such: the next smaller number of the type lies below the ideal.
TEST(ScaleCornersTest, ScalesAreTheNextNumbersOfTheirTypeToTheIdeal) {
  ForEveryExponent([](const QuantSpec& spec, const std::vector<double>&, const Group& group) {
    if (spec.secondary_scale != SecondaryScaleKind::kNone) return;
    const double ideal = IdealOf(spec, group);
    if (ideal == 0) return;  // OfAllZerosTheScaleIsOne
    const bool power = spec.scale == kFloat8E8M0;
    const uint32_t code = EncodeNumber(spec.scale, group.scale);
    ASSERT_EQ(DecodeNumber(spec.scale, code), group.scale);
    const double below = code == 0 ? 0 : DecodeNumber(spec.scale, code - 1);
    ASSERT_LE(below, ideal * (1 + 1e-6)) << "ideal " << ideal << ", scale " << group.scale;
    const double above = DecodeNumber(spec.scale, code + 1);
    const bool is_largest = !std::isfinite(above) || above > kLargestFloat;
    const bool is_near_the_end = ideal > 0x1p115;  // rounding up would give codes beyond float32
    if (is_largest || is_near_the_end) return;
    const double precision = power ? 0 : std::ldexp(1.0, -spec.scale.mantissa_bits);
    ASSERT_GE(group.scale, ideal * (1 - precision - 1e-6)) << "ideal " << ideal;
  });
}

// Whatever is small against the smallest scale of a type: never worse than with a scale of 1, which gives 0.
TEST(ScaleCornersTest, TinyWeightsGetTheSmallestScaleOfTheType) {
  for (const auto& [scale, smallest] : std::vector<std::pair<NumberFormat, double>>{
           {kFloat16, 0x1p-24}, {kFloat8E4M3, 0x1p-9}, {kFloat8E5M2, 0x1p-16}, {kFloat32, 0x1p-149},
           {kFloat8E8M0, 0x1p-127}}) {
    const QuantSpec spec{.weight = kFloat8E4M3, .scale = scale, .scale_block_k = kGroupColumns};
    const std::vector<float> weights(kGroupColumns * kGroupCount, 0x1p-149f);
    const auto tensor = Quantize(weights, {1, 1, kGroupColumns * kGroupCount}, spec);
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    for (const Group& group : GroupsOf(*tensor, weights)) {
      EXPECT_EQ(group.scale, smallest);
      EXPECT_EQ(group.decoded[0], scale == kFloat32 ? 0x1p-149 : 0) << "or the next code, which is farther";
    }
  }
}

TEST(ScaleCornersTest, OfAllZerosTheScaleIsOne) {
  for (const QuantSpec& spec : CornerSpecs()) {
    const std::vector<float> weights(kGroupColumns * kGroupCount, 0.0f);
    const auto tensor = Quantize(weights, {1, 1, kGroupColumns * kGroupCount}, spec);
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    for (const Group& group : GroupsOf(*tensor, weights)) {
      ASSERT_EQ(group.scale, 1) << NameOf(spec);
      ASSERT_EQ(group.decoded, group.weights) << NameOf(spec);
    }
  }
}

// 448 * scale lies beyond float32 where the scale was rounded up: the codes that do become the next smaller one, the
// others stay.
TEST(ScaleCornersTest, CodesThatWouldLeaveFloat32AreTheNextTowardsZero) {
  const QuantSpec spec{.weight = kFloat8E4M3, .scale = kFloat8E8M0, .scale_block_k = kGroupColumns};
  std::vector<float> weights(kGroupColumns * kGroupCount, 0x1p126f);
  weights[3] = std::numeric_limits<float>::max();
  weights[4] = -std::numeric_limits<float>::max();
  const auto tensor = Quantize(weights, {1, 1, kGroupColumns * kGroupCount}, spec);
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  const Group group = GroupsOf(*tensor, weights)[0];
  ASSERT_EQ(group.scale, 0x1p120);
  EXPECT_EQ(group.decoded[3], 0x1.ep127) << "2^128 is nearer, and no float32";
  EXPECT_EQ(group.decoded[4], -0x1.ep127);
  EXPECT_EQ(group.decoded[5], 0x1p126);
}

// The scale's type ends at 65504: the zero point lies far outside of the codes, and is no less exact.
TEST(ScaleCornersTest, FarZeroPointsKeepTheCodesApart) {
  const QuantSpec spec{.weight = IntegerFormat(4),
                       .scale = kFloat16,
                       .scale_block_k = kGroupColumns,
                       .zero_point = ZeroPointKind::kFloat};
  std::vector<float> weights(kGroupColumns * kGroupCount, -0x1p52f);
  for (int64_t i = 0; i < kGroupColumns; ++i) weights[i] += static_cast<float>(i) * 0x1p29f;  // 8192 codes each
  const auto tensor = Quantize(weights, {1, 1, kGroupColumns * kGroupCount}, spec);
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  const Group group = GroupsOf(*tensor, weights)[0];
  EXPECT_EQ(group.scale, 65504);
  for (int64_t i = 1; i < kGroupColumns; ++i) EXPECT_EQ(group.decoded[i] - group.decoded[0], 15 * 65504.0) << i;
}

}  // namespace
}  // namespace gemmd
