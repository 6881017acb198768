// Roundings and quotients of kernels/device/quantize_x*.cuh against core/quant.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/quant/reference.h"
#include "core/quant/scale_rule.h"
#include "kernels/device/quantize_x_code.cuh"
#include "kernels/device/quantize_x_scale.cuh"

namespace gemmd::device {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Around every code and every tie between neighbours: the float32 itself and the next ones.
std::vector<float> CriticalValues(const NumberFormat& format) {
  std::vector<float> points = {0, 1e30f, kInfinity, std::numeric_limits<float>::denorm_min()};
  const auto largest = static_cast<float>(LargestValue(format));
  for (uint32_t code = 0; code < 127; ++code) {
    const auto low = static_cast<float>(DecodeNumber(format, code));
    const auto high = static_cast<float>(DecodeNumber(format, code + 1));
    if (!(high <= largest)) break;
    points.push_back(low);
    points.push_back((low + high) / 2);
  }
  points.push_back(largest);
  points.push_back(largest * 1.0625f);
  std::vector<float> values;
  for (const float point : points) {
    for (const float sign : {1.0f, -1.0f}) {
      values.push_back(sign * point);
      values.push_back(sign * std::nextafter(point, kInfinity));
      values.push_back(sign * std::nextafter(point, 0.0f));
    }
  }
  return values;
}

template <NumberFormat kFormat>
void ExpectRoundsAsReference() {
  for (const float value : CriticalValues(kFormat)) {
    ASSERT_EQ(RoundToFloat8<kFormat>(value), EncodeNumber(kFormat, value)) << value;
  }
  for (uint32_t high = 0; high < (1u << 16); ++high) {  // every bfloat16
    const float value = FloatOf(high << 16);
    ASSERT_EQ(RoundToFloat8<kFormat>(value), EncodeNumber(kFormat, value)) << value;
  }
  std::mt19937 random(1);
  for (int i = 0; i < 1'000'000; ++i) {
    const float value = FloatOf(random());
    ASSERT_EQ(RoundToFloat8<kFormat>(value), EncodeNumber(kFormat, value)) << value;
  }
}

TEST(RoundToFloat8Test, E4M3IsTheReferenceAtEveryCodeAndTie) {
  ExpectRoundsAsReference<kFloat8E4M3>();
}

TEST(RoundToFloat8Test, E5M2IsTheReferenceAtEveryCodeAndTie) {
  ExpectRoundsAsReference<kFloat8E5M2>();
}

TEST(RoundToInt8Test, RoundsToNearestEvenAndSaturatesAt127) {
  for (int twice = -300; twice <= 300; ++twice) {
    const float tie = static_cast<float>(twice) / 2;
    for (const float value :
         {tie, std::nextafter(tie, -kInfinity), std::nextafter(tie, kInfinity)}) {
      const double expected = QuantizeSymmetric(value, 1, 8, ScaleRule::kLargest);
      ASSERT_EQ(static_cast<int8_t>(RoundToInt8(value)), expected) << value;
    }
  }
  EXPECT_EQ(static_cast<int8_t>(RoundToInt8(kInfinity)), 127);
  EXPECT_EQ(static_cast<int8_t>(RoundToInt8(-1e30f)), -127);
  EXPECT_EQ(RoundToInt8(std::nanf("")), 0u);
}

TEST(CodeRounderTest, PacksTheFirstValueIntoTheLowByte) {
  const float values[] = {1, -2, 0.5f, 448};
  EXPECT_EQ(CodeRounder<ElementType::kFloat8E4M3>::Four(values), 0x7e30c038u);
  EXPECT_EQ(CodeRounder<ElementType::kInt8>::Four(values), 0x7f00fe01u);
}

// The quotient, or what rounds to the same codes of every type where it is too small for that to matter.
void ExpectQuotient(float value, float divisor) {
  const float expected = value / divisor;
  const float got = Quotients(divisor).Of(value);
  if (std::isnan(expected)) {
    ASSERT_TRUE(std::isnan(got)) << value << " / " << divisor;
  } else if (std::abs(expected) >= 0x1p60f) {
    ASSERT_GE(std::abs(got), 0x1p59f) << value << " / " << divisor;
    ASSERT_EQ(std::signbit(got), std::signbit(expected)) << value << " / " << divisor;
  } else if (std::abs(expected) < 0x1p-20f) {
    ASSERT_LE(std::abs(got), 0x1p-20f) << value << " / " << divisor;
    ASSERT_EQ(std::signbit(got), std::signbit(expected)) << value << " / " << divisor;
  } else {
    ASSERT_EQ(got, expected) << value << " / " << divisor;
  }
}

TEST(QuotientsTest, AreThoseOfDivisionForEverySignificandOfSixteenBitTypes) {
  for (const float largest : {448.0f, 57344.0f, 127.0f}) {
    for (uint32_t top = 1024; top < 2048; top += 3) {
      const Quotients quotients(static_cast<float>(top) / largest);
      for (uint32_t significand = 1024; significand < 2048; ++significand) {
        const auto value = static_cast<float>(significand) / 2;
        ASSERT_EQ(quotients.Of(value), value / (static_cast<float>(top) / largest))
            << value << ", largest " << top;
      }
    }
  }
}

TEST(QuotientsTest, AreThoseOfDivisionForRandomNumbers) {
  std::mt19937 random(2);
  for (int i = 0; i < 2'000'000; ++i) {
    const float divisor = FloatOf((random() & 0x007fffffu) | 0x3f800000u);
    const float value = FloatOf((random() & 0x807fffffu) | 0x42000000u);
    ASSERT_NO_FATAL_FAILURE(ExpectQuotient(value, divisor));
  }
}

TEST(QuotientsTest, AreThoseOfDivisionOverTheWholeRange) {
  std::mt19937 random(3);
  for (int i = 0; i < 2'000'000; ++i) {
    ASSERT_NO_FATAL_FAILURE(ExpectQuotient(FloatOf(random()), FloatOf(random() & 0x7fffffffu)));
  }
  const float edges[] = {0,         -0.0f,      0x1p-149f, -0x1p-126f, 0x1p-80f, 0x1p100f,     1,
                         kInfinity, -kInfinity, 3e38f,     1e-30f,     -448,     std::nanf("")};
  for (const float value : edges) {
    for (const float divisor : edges) ExpectQuotient(value, divisor);
  }
}

// Scales whose quotients lie next to ties: value = (tie + a little) * scale.
TEST(QuotientsTest, AreThoseOfDivisionNextToTies) {
  std::mt19937 random(4);
  for (const float tie : {0x1p-10f, 0x1p-17f, 0.5f, 17.0f, 1.0625f, 464.0f, 126.5f, 0x1.ep15f}) {
    for (int i = 0; i < 100'000; ++i) {
      const float scale = std::ldexp(FloatOf((random() & 0x007fffffu) | 0x3f800000u),
                                     static_cast<int>(random() % 160) - 80);
      float value = tie * scale;
      for (uint32_t step = random() % 5; step > 0; --step) value = std::nextafter(value, kInfinity);
      for (uint32_t step = random() % 5; step > 0; --step) value = std::nextafter(value, 0.0f);
      const Quotients quotients(scale);
      ASSERT_EQ(quotients.Of(value), value / scale) << value << " / " << scale;
      ASSERT_EQ(quotients.Of(-value), -value / scale) << value << " / " << scale;
    }
  }
}

TEST(ScaleTest, IsThatOfTheReference) {
  std::mt19937 random(5);
  for (int i = 0; i < 100'000; ++i) {
    const float largest = FloatOf(random() & 0x7fffffffu);
    const ValueRange range{-largest, largest};
    const float ideal = IdealScale(range, kFloat8E4M3, ScaleRule::kLargest, false);
    const float expected = ideal == 0 ? 1.0f : ideal;
    const float got = ScaleOf<ElementType::kFloat8E4M3>(largest);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(got));
    } else {
      ASSERT_EQ(got, expected) << largest;
    }
  }
  EXPECT_EQ(ScaleOf<ElementType::kInt8>(0), 1);
}

TEST(LargestMagnitudeTest, KeepsNan) {
  const float nan = std::nanf("");
  EXPECT_EQ(LargestMagnitude<3>({1, -7, 2}), 7);
  EXPECT_TRUE(std::isnan(LargestMagnitude<3>({nan, -7, 2})));
  EXPECT_TRUE(std::isnan(LargestMagnitude<3>({1, 2, -nan})));
}

}  // namespace
}  // namespace gemmd::device
