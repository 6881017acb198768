// Every code of every number type, and every rounding, against ml_dtypes and torch
// (tests/data/codes).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "core/quant/reference.h"

namespace gemmd {
namespace {

constexpr NumberFormat kFloat8E3M4 = FloatFormat(3, 4, SpecialValues::kIeee);
constexpr NumberFormat kFloat8E4M3Ieee = FloatFormat(4, 3, SpecialValues::kIeee);

struct NamedFormat {
  const char* name;
  NumberFormat format;
};
const NamedFormat kTables[] = {
    {"float4_e2m1fn", kFloat4E2M1},       {"float6_e2m3fn", FloatFormat(2, 3)},
    {"float6_e3m2fn", FloatFormat(3, 2)}, {"float8_e3m4", kFloat8E3M4},
    {"float8_e4m3", kFloat8E4M3Ieee},     {"float8_e4m3fn", kFloat8E4M3},
    {"float8_e5m2", kFloat8E5M2},         {"float8_e8m0fnu", kFloat8E8M0},
};
const NamedFormat kRoundings[] = {
    {"float4_e2m1fn", kFloat4E2M1},       {"float6_e2m3fn", FloatFormat(2, 3)},
    {"float6_e3m2fn", FloatFormat(3, 2)}, {"float8_e3m4", kFloat8E3M4},
    {"float8_e4m3fn", kFloat8E4M3},       {"float8_e5m2", kFloat8E5M2},
};

nlohmann::json Load(const std::string& file) {
  std::ifstream stream(std::string(GEMMD_TEST_DATA) + "/codes/" + file);
  EXPECT_TRUE(stream) << file;
  return nlohmann::json::parse(stream);
}

float FromBits(const std::string& hex) {
  const auto bits = static_cast<uint32_t>(std::stoul(hex, nullptr, 16));
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Equal, or both NaN; -0 differs from +0.
bool Same(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b && std::signbit(a) == std::signbit(b);
}

class CodeTableTest : public ::testing::TestWithParam<NamedFormat> {};

TEST_P(CodeTableTest, DecodesEveryCodeToTheValueOfMlDtypes) {
  const auto table = Load(std::string("table_") + GetParam().name + ".json");
  ASSERT_EQ(table["codes"].size(), size_t{1} << GetParam().format.bits);
  for (const auto& row : table["codes"]) {
    const auto code = row["code"].get<uint32_t>();
    const double expected = FromBits(row["f32_bits"].get<std::string>());
    const double got = DecodeNumber(GetParam().format, code);
    EXPECT_TRUE(Same(got, expected)) << "code " << code << ": " << got << ", expected " << expected;
  }
}

TEST_P(CodeTableTest, EncodesEveryDecodedNumberToItsCode) {
  const NumberFormat& format = GetParam().format;
  for (uint32_t code = 0; code < (1u << format.bits); ++code) {
    const double value = DecodeNumber(format, code);
    if (std::isfinite(value)) {
      EXPECT_EQ(EncodeNumber(format, value), code) << value;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CodeTableTest, ::testing::ValuesIn(kTables),
                         [](const auto& info) { return std::string(info.param.name); });

class RoundingTest : public ::testing::TestWithParam<NamedFormat> {};

// The column code_saturating: clipped to the largest finite value, then rounded to nearest even. It
// says nothing about NaN: there the format's NaN is wanted, or 0 where it has none.
TEST_P(RoundingTest, RoundsToNearestEvenAndSaturates) {
  const NumberFormat& format = GetParam().format;
  const auto table = Load(std::string("f32_to_") + GetParam().name + ".json");
  const auto& bits = table["f32_bits"];
  const auto& codes = table["code_saturating"];
  ASSERT_EQ(bits.size(), codes.size());
  for (size_t i = 0; i < bits.size(); ++i) {
    const float value = FromBits(bits[i].get<std::string>());
    const uint32_t got = EncodeNumber(format, value);
    if (std::isnan(value)) {
      const bool has_nan = format.special != SpecialValues::kNone;
      EXPECT_TRUE(has_nan ? std::isnan(DecodeNumber(format, got)) : got == 0) << got;
    } else {
      EXPECT_EQ(got, codes[i].get<uint32_t>()) << "of " << value;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, RoundingTest, ::testing::ValuesIn(kRoundings),
                         [](const auto& info) { return std::string(info.param.name); });

// ml_dtypes gives NaN for what e8m0 cannot hold; we saturate, as for every scale type.
TEST(ExponentFormatTest, RoundsPositiveNumbersAsMlDtypesDoes) {
  const auto table = Load("f32_to_float8_e8m0fnu.json");
  const auto& bits = table["f32_bits"];
  for (size_t i = 0; i < bits.size(); ++i) {
    const float value = FromBits(bits[i].get<std::string>());
    const auto expected = table["code_ml_dtypes"][i].get<uint32_t>();
    const uint32_t got = EncodeNumber(kFloat8E8M0, value);
    if (std::isnan(value)) {
      EXPECT_EQ(got, 255u);
    } else if (!(value > 0)) {
      EXPECT_EQ(got, 0u) << "of " << value;
    } else if (value > std::ldexp(1.f, -127) && value < std::ldexp(1.5f, -127)) {
      EXPECT_EQ(got, 0u) << "ml_dtypes gives 1, but 2^-127 is nearer to " << value;
    } else {
      EXPECT_EQ(got, expected == 255 ? 254 : expected) << "of " << value;
    }
  }
}

TEST(ExponentFormatTest, HasNoZeroAndKeepsSubnormals) {
  EXPECT_EQ(DecodeNumber(kFloat8E8M0, 0), std::ldexp(1.0, -127));
  EXPECT_EQ(DecodeNumber(kFloat8E8M0, 254), std::ldexp(1.0, 127));
  EXPECT_TRUE(std::isnan(DecodeNumber(kFloat8E8M0, 255)));
}

TEST(SignMagnitudeTest, HoldsIntegersWithASign) {
  const NumberFormat e0m3 = FloatFormat(0, 3);
  EXPECT_EQ(DecodeNumber(e0m3, 7), 7);
  EXPECT_EQ(DecodeNumber(e0m3, 15), -7);
  EXPECT_TRUE(Same(DecodeNumber(e0m3, 8), -0.0));
  EXPECT_EQ(EncodeNumber(e0m3, -2.5), 8u + 2);
  EXPECT_EQ(EncodeNumber(e0m3, 3.5), 4u);
  EXPECT_EQ(EncodeNumber(e0m3, -1e30), 15u);
  EXPECT_EQ(DecodeNumber(FloatFormat(0, 7), 0xff), -127);
}

TEST(IntegerFormatTest, EncodesUnsignedCodes) {
  EXPECT_EQ(EncodeNumber(IntegerFormat(4), 3.5), 4u);
  EXPECT_EQ(EncodeNumber(IntegerFormat(4), 2.5), 2u);
  EXPECT_EQ(EncodeNumber(IntegerFormat(4), 99), 15u);
  EXPECT_EQ(EncodeNumber(IntegerFormat(4), -1), 0u);
  EXPECT_EQ(EncodeNumber(IntegerFormat(4), std::numeric_limits<double>::quiet_NaN()), 0u);
  for (uint32_t code = 0; code < 256; ++code) EXPECT_EQ(DecodeNumber(IntegerFormat(8), code), code);
}

// A float of at most 8 bits is fully described by rounding each midpoint between neighbours to the
// even code and its float32 neighbours to the nearer one.
TEST(SmallFloatTest, RoundsEveryMidpointOfEveryWidthToTheEvenSignificand) {
  for (int exponent_bits = 0; exponent_bits <= 7; ++exponent_bits) {
    for (int mantissa_bits = 0; 1 + exponent_bits + mantissa_bits <= 8; ++mantissa_bits) {
      if (exponent_bits + mantissa_bits == 0) continue;
      const NumberFormat format = FloatFormat(exponent_bits, mantissa_bits);
      for (uint32_t code = 0; code + 1 < (1u << (format.bits - 1)); ++code) {
        const double low = DecodeNumber(format, code);
        const double high = DecodeNumber(format, code + 1);
        const double middle = (low + high) / 2;
        ASSERT_LT(low, high);
        // Without mantissa bits the significand of a normal number is 1, which is odd.
        const bool up = mantissa_bits == 0 && exponent_bits > 0 ? code > 0 : (code & 1) != 0;
        ASSERT_EQ(EncodeNumber(format, middle), code + up) << exponent_bits << mantissa_bits;
        ASSERT_EQ(EncodeNumber(format, std::nextafter(middle, low)), code);
        ASSERT_EQ(EncodeNumber(format, std::nextafter(middle, high)), code + 1);
      }
    }
  }
}

TEST(WideFloatTest, AgreesWithTheHardwareForFloat32) {
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 65521) {
    float value;
    const auto word = static_cast<uint32_t>(bits);
    std::memcpy(&value, &word, sizeof(value));
    ASSERT_TRUE(Same(DecodeNumber(kFloat32, word), value));
    if (std::isnan(value)) continue;
    ASSERT_EQ(EncodeNumber(kFloat32, value), word);
  }
}

TEST(WideFloatTest, Rounds16BitTypesAndOverflowsToInfinity) {
  EXPECT_EQ(EncodeNumber(kFloat16, 1.0), 0x3c00u);
  EXPECT_EQ(EncodeNumber(kFloat16, 65519.0), 0x7bffu);
  EXPECT_EQ(EncodeNumber(kFloat16, 65520.0), 0x7c00u);
  EXPECT_EQ(EncodeNumber(kFloat16, -std::numeric_limits<double>::infinity()), 0xfc00u);
  EXPECT_EQ(EncodeNumber(kFloat16, std::ldexp(1.0, -24)), 1u);
  EXPECT_EQ(EncodeNumber(kFloat16, std::ldexp(1.0, -25)), 0u);
  EXPECT_EQ(EncodeNumber(kBFloat16, 1.0 + std::ldexp(1.0, -8)), 0x3f80u);
  EXPECT_EQ(EncodeNumber(kBFloat16, 1.0 + std::ldexp(3.0, -8)), 0x3f82u);
  EXPECT_EQ(EncodeNumber(kBFloat16, std::numeric_limits<double>::quiet_NaN()), 0x7fc0u);
  for (uint32_t code = 0; code < 65536; ++code) {
    for (const NumberFormat& format : {kFloat16, kBFloat16}) {
      const double value = DecodeNumber(format, code);
      if (std::isnan(value)) continue;
      ASSERT_EQ(EncodeNumber(format, value), code);
    }
  }
}

}  // namespace
}  // namespace gemmd
