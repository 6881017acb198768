#include "kernels/device/decode_number.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "core/quant/reference.h"
#include "kernels/device/element.cuh"

namespace gemmd {
namespace {

using device::BitsOf;
using device::FloatOf;
using device::NumberDecoder;

// Same value and sign; any NaN equals any NaN.
bool SameNumber(float got, double expected) {
  if (std::isnan(expected)) return std::isnan(got);
  return static_cast<double>(got) == expected && std::signbit(got) == std::signbit(expected);
}

template <NumberFormat kFormat>
void ExpectAllCodesDecode(uint64_t codes = uint64_t{1} << kFormat.bits) {
  for (uint64_t code = 0; code < codes; ++code) {
    const auto bits = static_cast<uint32_t>(code);
    const float got = NumberDecoder<kFormat>::Decode(bits);
    ASSERT_TRUE(SameNumber(got, DecodeNumber(kFormat, bits)))
        << "e" << int{kFormat.exponent_bits} << "m" << int{kFormat.mantissa_bits} << " special "
        << static_cast<int>(kFormat.special) << " code " << code << " gives " << got;
  }
}

// Every float of sign + E + M <= 8 bits.
template <int kIndex>
void ExpectSmallFloat() {
  constexpr int kExponent = kIndex / 8;
  constexpr int kMantissa = kIndex % 8;
  if constexpr (kExponent + kMantissa >= 1 && kExponent + kMantissa <= 7) {
    ExpectAllCodesDecode<FloatFormat(kExponent, kMantissa)>();
    ExpectAllCodesDecode<FloatFormat(kExponent, kMantissa, SpecialValues::kNanOnly)>();
    if constexpr (kExponent >= 2 && kMantissa >= 1) {
      ExpectAllCodesDecode<FloatFormat(kExponent, kMantissa, SpecialValues::kIeee)>();
    }
  }
}

template <int... kIndex>
void ExpectSmallFloats(std::integer_sequence<int, kIndex...>) {
  (ExpectSmallFloat<kIndex>(), ...);
}

TEST(DecodeNumberTest, DecodesEveryCodeOfEveryFloatUpToEightBits) {
  ExpectSmallFloats(std::make_integer_sequence<int, 64>());
}

TEST(DecodeNumberTest, DecodesEveryIntegerCode) {
  ExpectAllCodesDecode<IntegerFormat(1)>();
  ExpectAllCodesDecode<IntegerFormat(2)>();
  ExpectAllCodesDecode<IntegerFormat(3)>();
  ExpectAllCodesDecode<IntegerFormat(4)>();
  ExpectAllCodesDecode<IntegerFormat(5)>();
  ExpectAllCodesDecode<IntegerFormat(6)>();
  ExpectAllCodesDecode<IntegerFormat(7)>();
  ExpectAllCodesDecode<IntegerFormat(8)>();
}

TEST(DecodeNumberTest, DecodesEveryExponentCode) {
  ExpectAllCodesDecode<kFloat8E8M0>();
  EXPECT_EQ(NumberDecoder<kFloat8E8M0>::Decode(0), std::ldexp(1.0f, -127));
  EXPECT_EQ(NumberDecoder<kFloat8E8M0>::Decode(254), std::ldexp(1.0f, 127));
}

TEST(DecodeNumberTest, DecodesEverySixteenBitFloat) {
  ExpectAllCodesDecode<kFloat16>();
  ExpectAllCodesDecode<kBFloat16>();
}

TEST(DecodeNumberTest, KeepsTheBitsOfFloat32) {
  for (const uint32_t bits :
       {0u, 1u, 0x80000000u, 0x00800000u, 0x7f7fffffu, 0x7f800000u, 0xff800000u}) {
    EXPECT_EQ(BitsOf(NumberDecoder<kFloat32>::Decode(bits)), bits);
  }
  EXPECT_TRUE(std::isnan(NumberDecoder<kFloat32>::Decode(0x7f800001u)));
}

TEST(ElementTest, LoadsEveryInt8) {
  for (int value = -128; value < 128; ++value) {
    const auto element = static_cast<int8_t>(value);
    EXPECT_EQ(device::LoadElement(ElementType::kInt8, &element, 0), static_cast<float>(value));
  }
}

// Rounds `value` both ways; EncodeNumber keeps overflow at infinity for these two formats.
void ExpectRoundsLikeReference(float value) {
  if (std::isnan(value)) {
    const uint16_t half = device::RoundToFloat16(value);
    const uint16_t brain = device::RoundToBFloat16(value);
    ASSERT_TRUE(std::isnan(DecodeNumber(kFloat16, half)) &&
                std::isnan(DecodeNumber(kBFloat16, brain)));
    return;
  }
  ASSERT_EQ(device::RoundToFloat16(value), EncodeNumber(kFloat16, value)) << value;
  ASSERT_EQ(device::RoundToBFloat16(value), EncodeNumber(kBFloat16, value)) << value;
}

TEST(ElementTest, RoundsToNearestEvenAroundEverySixteenBitCode) {
  for (const NumberFormat& format : {kFloat16, kBFloat16}) {
    for (uint32_t code = 0; code < 0x10000; ++code) {
      const auto value = static_cast<float>(DecodeNumber(format, code));
      const auto next = static_cast<float>(DecodeNumber(format, (code + 1) & 0xffff));
      const uint32_t middle = BitsOf(value + (next - value) / 2);
      ExpectRoundsLikeReference(value);
      for (const uint32_t bits : {middle - 1, middle, middle + 1})
        ExpectRoundsLikeReference(FloatOf(bits));
    }
  }
}

TEST(ElementTest, RoundsFloatsOfAllBinadesLikeReference) {
  uint32_t bits = 0x12345678u;
  for (int i = 0; i < 300000; ++i) {
    bits = bits * 1664525u + 1013904223u;
    ExpectRoundsLikeReference(FloatOf(bits));
  }
}

}  // namespace
}  // namespace gemmd
