#include "kernels/pack/special_codes.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace gemmd {
namespace {

// One code at `column` of the last of three rows; the others are `rest`.
bool Finds(const NumberFormat& weight, int64_t k, int64_t column, uint32_t code, uint32_t rest) {
  constexpr int64_t kRows = 3;
  const int64_t row_bytes = (k * weight.bits + 31) / 32 * 4;
  std::vector<std::byte> codes(static_cast<size_t>(kRows * row_bytes));
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i < k; ++i) {
      const uint32_t value = row == kRows - 1 && i == column ? code : rest;
      for (int bit = 0; bit < weight.bits; ++bit) {
        const int64_t at = row * row_bytes * 8 + i * weight.bits + bit;
        codes[static_cast<size_t>(at / 8)] |= static_cast<std::byte>((value >> bit & 1) << at % 8);
      }
    }
  }
  return HasSpecialCode(weight, {1, kRows, k}, codes);
}

TEST(SpecialCodesTest, NoticesEverySpecialCodeOfEightBitsAndNoOther) {
  for (const NumberFormat& weight : {kFloat8E4M3, kFloat8E5M2}) {
    for (uint32_t code = 0; code < 256; ++code) {
      const uint32_t magnitude = code & 0x7f;
      const bool special = weight == kFloat8E4M3 ? magnitude == 0x7f : magnitude >= 0x7c;
      EXPECT_EQ(Finds(weight, 21, code % 21, code, 0x3c), special) << "code " << code;
    }
  }
}

TEST(SpecialCodesTest, NoticesEverySpecialCodeOfSixteenBitsAndNoOther) {
  for (const auto& [weight, first, rest] :
       {std::tuple(kBFloat16, 0x7f80u, 0x3f80u), {kFloat16, 0x7c00u, 0x3c00u}}) {
    for (uint32_t code = 0; code < 0x10000; code += code % 64 == 0 ? 1 : 7) {
      ASSERT_EQ(Finds(weight, 7, code % 7, code, rest), (code & 0x7fff) >= first)
          << "code " << code;
    }
    EXPECT_TRUE(Finds(weight, 7, 6, first, rest));
    EXPECT_FALSE(Finds(weight, 7, 6, first - 1, rest));
  }
}

TEST(SpecialCodesTest, OtherWidthsAndFormatsWithoutSpecialCodes) {
  const NumberFormat six = FloatFormat(3, 2, SpecialValues::kIeee);
  for (uint32_t code = 0; code < 64; ++code) {
    EXPECT_EQ(Finds(six, 19, code % 19, code, 3), (code & 31) >= 28) << "code " << code;
  }
  EXPECT_FALSE(Finds(kFloat4E2M1, 9, 3, 15, 15));
  EXPECT_FALSE(Finds(IntegerFormat(8), 9, 3, 255, 255));
}

}  // namespace
}  // namespace gemmd
