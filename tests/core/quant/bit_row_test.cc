#include "core/quant/bit_row.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace gemmd {
namespace {

TEST(BitRowTest, PutsCodesLowBitsFirstAcrossWords) {
  std::vector<uint8_t> codes(11);
  codes[10] = 7;  // bits 30 to 32
  std::vector<std::byte> row(BitRowBytes(11, 3));
  PackBitRow(codes, 3, row.data());
  EXPECT_THAT(row, ::testing::ElementsAre(std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0xc0},
                                          std::byte{1}, std::byte{0}, std::byte{0}, std::byte{0}));
}

TEST(BitRowTest, UnpacksWhatItPacksForEveryWidthAndLength) {
  std::mt19937 random(1);
  for (int bits = 1; bits <= 8; ++bits) {
    for (int64_t count = 1; count <= 70; ++count) {
      std::vector<uint8_t> codes(count);
      for (uint8_t& code : codes) code = static_cast<uint8_t>(random() % (1u << bits));
      std::vector<std::byte> row(BitRowBytes(count, bits), std::byte{0xff});
      PackBitRow(codes, bits, row.data());
      std::vector<uint8_t> unpacked(count);
      UnpackBitRow(row.data(), bits, absl::MakeSpan(unpacked));
      ASSERT_EQ(unpacked, codes) << bits << " bits, " << count << " codes";
    }
  }
}

}  // namespace
}  // namespace gemmd
