#include "core/quant/not_finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "core/quant/bit_row.h"
#include "core/quant/digest.h"
#include "core/quant/reference.h"

namespace gemmd {
namespace {

// Every code of a type of up to 16 bits, one row with an odd number of columns before it.
TEST(CountNotFiniteTest, CountsWhatDecodesSo) {
  for (const NumberFormat& format : {kFloat8E4M3, kFloat8E5M2, kFloat16, kBFloat16, kFloat4E2M1,
                                     IntegerFormat(8), FloatFormat(3, 2, SpecialValues::kIeee)}) {
    const int64_t k = (int64_t{1} << format.bits) - 1;
    StandardTensor tensor{.shape = {1, 2, k}};
    tensor.spec.weight = format;
    const int64_t row_bytes = BitRowBytes(k, format.bits);
    tensor.codes.resize(static_cast<size_t>(2 * row_bytes));
    int64_t expected = 0;
    for (int64_t row = 0; row < 2; ++row) {
      std::vector<uint8_t> narrow;
      for (int64_t column = 0; column < k; ++column) {
        const auto code = static_cast<uint32_t>(column + row);
        if (!std::isfinite(DecodeNumber(format, code))) ++expected;
        narrow.push_back(static_cast<uint8_t>(code));
        if (format.bits != 16) continue;
        const auto wide = static_cast<uint16_t>(code);
        std::memcpy(tensor.codes.data() + row * row_bytes + column * 2, &wide, sizeof(wide));
      }
      if (format.bits <= 8) PackBitRow(narrow, format.bits, tensor.codes.data() + row * row_bytes);
    }
    EXPECT_EQ(CountNotFinite(tensor), expected) << static_cast<int>(format.bits);
    EXPECT_EQ(expected > 0, format.special != SpecialValues::kNone);
  }
}

TEST(CountNotFiniteTest, CountsFloat32OfAllExperts) {
  StandardTensor tensor{.shape = {2, 1, 4}};
  tensor.spec.weight = kFloat32;
  const float values[] = {1, -INFINITY, 3.4e38f, -0.0f, NAN, INFINITY, 1e-45f, -NAN};
  tensor.codes.resize(sizeof(values));
  std::memcpy(tensor.codes.data(), values, sizeof(values));
  EXPECT_EQ(CountNotFinite(tensor), 4);
}

// More codes than are looked at together, with the odd one anywhere; and the digest beside the count is the digest.
TEST(CountNotFiniteTest, FindsOneAmongMany) {
  for (const NumberFormat& format : {kFloat8E4M3, kFloat8E5M2, kBFloat16, kFloat32}) {
    const int64_t k = (200 << 10) + 4;
    StandardTensor tensor{.shape = {1, 1, k}};
    tensor.spec.weight = format;
    const size_t bytes = static_cast<size_t>(format.bits / 8);
    const uint32_t not_a_number = 0xffffffffu >> (32 - format.bits);
    for (const int64_t at : {int64_t{0}, int64_t{1023}, int64_t{1024}, int64_t{70000}, k - 1}) {
      tensor.codes = Buffer();
      tensor.codes.resize(static_cast<size_t>(k) * bytes);
      EXPECT_EQ(ContentOf(tensor).not_finite_weights, 0);
      std::memcpy(tensor.codes.data() + static_cast<size_t>(at) * bytes, &not_a_number, bytes);
      EXPECT_EQ(CountNotFinite(tensor), 1) << static_cast<int>(format.bits) << " " << at;
      const LayerContent content = ContentOf(tensor);
      EXPECT_EQ(content.not_finite_weights, 1) << static_cast<int>(format.bits) << " " << at;
      EXPECT_EQ(content.digest, Digest(tensor));
    }
  }
}

}  // namespace
}  // namespace gemmd
