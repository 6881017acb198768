#include "kernels/device/split_tf32.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/quant/reference.h"

namespace gemmd::device {
namespace {

constexpr NumberFormat kTf32 = FloatFormat(8, 10, SpecialValues::kIeee);

bool IsTf32(float value) { return (BitsOf(value) & ~kTf32Mask) == 0; }

TEST(SplitTf32Test, RoundsToTheNearestTf32) {
  uint32_t bits = 99;
  for (int i = 0; i < 200000; ++i) {
    bits = bits * 1664525u + 1013904223u;
    const float value = FloatOf(bits);
    if (!IsFinite(value) || std::abs(value) > 3.3e38f) continue;
    ASSERT_EQ(NearestTf32(value), DecodeNumber(kTf32, EncodeNumber(kTf32, value))) << value;
  }
}

TEST(SplitTf32Test, KeepsTwentyTwoBits) {
  uint32_t bits = 7;
  for (int i = 0; i < 200000; ++i) {
    bits = bits * 1664525u + 1013904223u;
    const float value = FloatOf(bits);
    if (!IsFinite(value) || std::abs(value) < 1e-30f) continue;
    const Tf32Pair pair = SplitTf32(value);
    ASSERT_TRUE(IsTf32(pair.high) && IsTf32(pair.low)) << value;
    const double error = static_cast<double>(pair.high) + pair.low - value;
    ASSERT_LE(std::abs(error), std::ldexp(std::abs(static_cast<double>(value)), -22)) << value;
  }
}

TEST(SplitTf32Test, NeedsOneTermForTf32Numbers) {
  for (uint32_t high = 0; high < 0x7f800000u; high += 0x2000u * 37u) {
    const Tf32Pair pair = SplitTf32(FloatOf(high & kTf32Mask));
    ASSERT_EQ(BitsOf(pair.high), high & kTf32Mask);
    ASSERT_EQ(pair.low, 0.0f);
  }
}

TEST(SplitTf32Test, StaysFiniteUpToTheLargestFloat) {
  const Tf32Pair pair = SplitTf32(std::numeric_limits<float>::max());
  EXPECT_TRUE(IsFinite(pair.high));
  EXPECT_TRUE(IsFinite(pair.low));
}

TEST(SplitTf32Test, KeepsSpecialValuesInTheHighTermAlone) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(SplitTf32(infinity).high, infinity);
  EXPECT_EQ(SplitTf32(-infinity).high, -infinity);
  EXPECT_EQ(SplitTf32(infinity).low, 0.0f);
  // A NaN whose payload lies in the bits that the matrix unit drops would turn into an infinity.
  const Tf32Pair nan = SplitTf32(FloatOf(0x7f800001u));
  EXPECT_TRUE(std::isnan(FloatOf(BitsOf(nan.high) & kTf32Mask)));
  EXPECT_EQ(nan.low, 0.0f);
  EXPECT_EQ(FiniteOrZero(nan.high), 0.0f);
  EXPECT_EQ(FiniteOrZero(infinity), 0.0f);
  EXPECT_EQ(FiniteOrZero(1.5f), 1.5f);
}

}  // namespace
}  // namespace gemmd::device
