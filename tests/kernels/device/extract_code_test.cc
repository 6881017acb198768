#include "kernels/device/extract_code.cuh"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <utility>
#include <vector>

namespace gemmd::device {
namespace {

// Codes 0 to count - 1 of a row, bit by bit.
uint32_t CodeBitByBit(const uint32_t* row, int bits, int64_t index) {
  uint32_t code = 0;
  for (int bit = 0; bit < bits; ++bit) {
    const int64_t position = index * bits + bit;
    code |= (row[position / 32] >> (position % 32) & 1u) << bit;
  }
  return code;
}

template <int kBits>
void ExpectReadsEveryCode() {
  std::mt19937 random(kBits);
  for (int64_t count = 1; count <= 70; ++count) {
    // Exactly the words of the row: reading past them is seen by the address sanitizer.
    const int64_t words = (count * kBits + 31) / 32;
    const std::unique_ptr<uint32_t[]> row(new uint32_t[static_cast<size_t>(words)]);
    for (int64_t i = 0; i < words; ++i) row[static_cast<size_t>(i)] = random();
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(CodeReader<kBits>::Load(row.get(), i), CodeBitByBit(row.get(), kBits, i))
          << kBits << " bits, code " << i << " of " << count;
    }
  }
}

template <int... kBits>
void ExpectReadsEveryWidth(std::integer_sequence<int, kBits...>) {
  (ExpectReadsEveryCode<kBits + 1>(), ...);
}

TEST(ExtractCodeTest, ReadsEveryCodeOfEveryWidthWithinItsRow) {
  ExpectReadsEveryWidth(std::make_integer_sequence<int, 32>());
}

}  // namespace
}  // namespace gemmd::device
