#include "core/quant/not_finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "core/quant/bit_row.h"
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

}  // namespace
}  // namespace gemmd
