// Many codes at a time are those of the number formats, one by one.
#include "core/quant/code_encoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "core/quant/reference.h"

namespace gemmd {
namespace {

// Every upper half of a float32 that is finite, with lower halves on both sides of each boundary.
std::vector<float> ManyFloats() {
  std::vector<float> values;
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t lower : {0u, 1u, 0x8000u, 0xffffu}) {
      const float value = std::bit_cast<float>(upper << 16 | lower);
      if (std::isfinite(value)) values.push_back(value);
    }
  }
  return values;
}

std::vector<NumberFormat> SmallFloats() {
  std::vector<NumberFormat> formats = {kFloat8E4M3, kFloat8E5M2, FloatFormat(3, 4, SpecialValues::kIeee)};
  for (int exponent = 0; exponent <= 7; ++exponent) {
    for (int mantissa = 0; exponent + mantissa <= 7; ++mantissa) {
      if (exponent + mantissa >= 1) formats.push_back(FloatFormat(exponent, mantissa));
    }
  }
  return formats;
}

TEST(CodeEncoderTest, GivesTheNearestFloatForEveryQuotient) {
  const std::vector<float> values = ManyFloats();
  std::vector<uint8_t> codes(values.size());
  for (const NumberFormat& format : SmallFloats()) {
    const CodeEncoder encoder(format, ScaleRule::kLargest, false);
    encoder.Encode(values, 1, 0, codes.data());
    const double largest = LargestValue(format);
    for (size_t i = 0; i < values.size(); ++i) {
      const uint32_t want = EncodeNumber(format, std::clamp<double>(values[i], -largest, largest));
      ASSERT_EQ(codes[i], want) << values[i] << " as e" << int{format.exponent_bits} << "m"
                                << int{format.mantissa_bits};
    }
    EXPECT_EQ(encoder.Value(codes[1000]), DecodeNumber(format, codes[1000]));
  }
}

TEST(CodeEncoderTest, RoundsIntegersAsTheScaleRulesSay) {
  const std::vector<float> values = {-1e30f, -129, -7.5f, -6.5f, -2.5f, -0.5f, -0.0f, 0,
                                     0.5f,   1.5f, 2.5f,  6.5f,  7.49f, 126.5f, 127.5f, 1e30f};
  std::vector<uint8_t> codes(values.size());
  for (int bits = 1; bits <= 8; ++bits) {
    for (const ScaleRule rule : {ScaleRule::kLargest, ScaleRule::kFullRange}) {
      const CodeEncoder encoder(IntegerFormat(bits), rule, false);
      encoder.Encode(values, 0.5f, 99, codes.data());
      for (size_t i = 0; i < values.size(); ++i) {
        const double number = QuantizeSymmetric(values[i], 0.5f, bits, rule);
        EXPECT_EQ(codes[i], number + (1 << (bits - 1))) << values[i] << ", " << bits << " bits";
        EXPECT_EQ(encoder.Value(codes[i]), number);
      }
    }
    const CodeEncoder encoder(IntegerFormat(bits), ScaleRule::kLargest, true);
    encoder.Encode(values, 0.5f, 1.25f, codes.data());
    for (size_t i = 0; i < values.size(); ++i) {
      const double code = std::nearbyint(values[i] / 0.5f + 1.25f);
      EXPECT_EQ(codes[i], std::clamp<double>(code, 0, (1 << bits) - 1)) << values[i];
    }
  }
}

}  // namespace
}  // namespace gemmd
