#include "core/exec/cpu_numbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/tensors.h"

namespace gemmd {
namespace {

using testing::HostMatrix;

uint32_t Rounded(const NumberFormat& type, double value) {
  HostMatrix matrix(type, 1, 1);
  WriteRow(matrix.view(), 0, 0, &value, 1);
  return matrix.Code(0, 0);
}

class SixteenBitTest : public ::testing::TestWithParam<NumberFormat> {};
INSTANTIATE_TEST_SUITE_P(Types, SixteenBitTest, ::testing::Values(kFloat16, kBFloat16),
                         [](const auto& info) { return FormatName(info.param); });

TEST_P(SixteenBitTest, EveryFiniteCodeSurvivesTheRoundTrip) {
  for (uint32_t code = 0; code < 65536; ++code) {
    const double value = DecodeNumber(GetParam(), code);
    if (std::isnan(value)) continue;
    ASSERT_EQ(Rounded(GetParam(), value), code) << value;
    ASSERT_EQ(RoundTo(GetParam(), value), value);
  }
}

TEST_P(SixteenBitTest, HalfwayGoesToTheEvenNeighbourAndTheRestToTheNearest) {
  const uint32_t infinity = EncodeNumber(GetParam(), std::numeric_limits<double>::infinity());
  for (uint32_t code = 0; code + 1 < infinity; ++code) {
    const double low = DecodeNumber(GetParam(), code);
    const double high = DecodeNumber(GetParam(), code + 1);
    const double middle = low + (high - low) / 2;
    const uint32_t even = code % 2 == 0 ? code : code + 1;
    ASSERT_EQ(Rounded(GetParam(), middle), even) << code;
    ASSERT_EQ(Rounded(GetParam(), std::nextafter(middle, 0.0)), code);
    ASSERT_EQ(Rounded(GetParam(), std::nextafter(middle, high)), code + 1);
    ASSERT_EQ(Rounded(GetParam(), -middle), even | 0x8000u);
  }
}

TEST_P(SixteenBitTest, BeyondTheLargestValueIsInfiniteAndNanStaysNan) {
  const double largest = GetParam() == kFloat16 ? 65504.0 : 0x1.fep127;
  EXPECT_TRUE(std::isfinite(RoundTo(GetParam(), largest)));
  EXPECT_TRUE(std::isinf(RoundTo(GetParam(), largest * 1.5)));
  EXPECT_TRUE(std::isinf(RoundTo(GetParam(), 1e300)));
  EXPECT_TRUE(std::isnan(RoundTo(GetParam(), std::nan(""))));
  EXPECT_EQ(RoundTo(GetParam(), 1e-300), 0.0);
}

TEST(CpuNumbersTest, RoundsOnceNotThroughFloat) {
  // float32 would first drop 2^-30, then see a tie and go to the even 1.0.
  const double value = 1.0 + 0x1p-11 + 0x1p-30;
  EXPECT_EQ(RoundTo(kFloat16, value), 1.0 + 0x1p-10);
  EXPECT_EQ(static_cast<float>(value), 1.0f + 0x1p-11f);
}

TEST(CpuNumbersTest, ReadsEveryEightBitCode) {
  for (const NumberFormat& type : {kFloat8E4M3, kFloat8E5M2, kInt8}) {
    HostMatrix matrix(type, 1, 256);
    for (uint32_t code = 0; code < 256; ++code) matrix.SetCode(0, code, code);
    std::vector<double> values(256);
    ReadRow(matrix.view(), 0, values.data());
    for (uint32_t code = 0; code < 256; ++code) {
      const double expected = matrix.Get(0, code);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(values[code])) << FormatName(type) << " " << code;
      } else {
        EXPECT_EQ(values[code], expected) << FormatName(type) << " " << code;
      }
    }
  }
}

TEST(CpuNumbersTest, HonoursTheRowStrideAndWritesNothingElse) {
  HostMatrix matrix(kFloat16, 3, 4, /*padding=*/3);
  HostMatrix untouched(kFloat16, 3, 4, /*padding=*/3);
  const double values[] = {1, 2};
  WriteRow(matrix.view(), 1, 2, values, 2);
  EXPECT_EQ(matrix.Get(1, 2), 1);
  EXPECT_EQ(matrix.Get(1, 3), 2);
  size_t changed = 0;
  for (size_t i = 0; i < matrix.bytes().size(); ++i) {
    changed += matrix.bytes()[i] != untouched.bytes()[i];
  }
  EXPECT_LE(changed, 4u);
}

}  // namespace
}  // namespace gemmd
