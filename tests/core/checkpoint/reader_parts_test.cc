#include "core/checkpoint/reader_parts.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "absl/strings/match.h"
#include "core/quant/reference.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

Buffer RandomBytes(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  Buffer bytes(static_cast<size_t>(count));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Element by element.
Buffer PlainTranspose(const Buffer& bytes, int64_t rows, int64_t columns, int64_t element_bytes) {
  Buffer out(bytes.size());
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      std::memcpy(out.data() + (column * rows + row) * element_bytes,
                  bytes.data() + (row * columns + column) * element_bytes,
                  static_cast<size_t>(element_bytes));
    }
  }
  return out;
}

TEST(ReaderPartsTest, TransposesEveryShapeWhateverItsTailsAndAlignment) {
  struct Extents {
    int64_t rows, columns;
  };
  for (const int64_t element_bytes : {1, 2, 4}) {
    for (const Extents& at : {Extents{1, 1}, {1, 100}, {100, 1}, {16, 16}, {64, 64}, {63, 65}, {65, 63},
                              {17, 200}, {200, 17}, {128, 192}, {130, 66}, {2100, 70}, {70, 2100}}) {
      const Buffer bytes = RandomBytes(at.rows * at.columns * element_bytes, 3);
      EXPECT_TRUE(Transpose(bytes, at.rows, at.columns, element_bytes) ==
                  PlainTranspose(bytes, at.rows, at.columns, element_bytes))
          << at.rows << " x " << at.columns << " of " << element_bytes << " bytes";
    }
  }
}

TEST(ReaderPartsTest, PadsRowsWithZeros) {
  const Buffer bytes = RandomBytes(3 * 5, 4);
  const Buffer padded = PadRows(bytes, 5);
  ASSERT_EQ(padded.size(), 3u * 8);
  for (size_t i = 0; i < padded.size(); ++i) {
    EXPECT_EQ(padded[i], i % 8 < 5 ? bytes[i / 8 * 5 + i % 8] : std::byte{0}) << i;
  }
}

// Tensors of a module for messages.
ModuleTensors Module() {
  return ModuleTensors::FromMemory("m", "file", {{".scales", {{"F16", {1}}, Buffer(2)}}});
}

// One bad scale among good ones.
bool Accepts(const std::string& dtype, uint16_t bits, ScaleSign sign) {
  TensorData data{{dtype, {9}}, Buffer()};
  const uint16_t one = dtype == "F16" ? 0x3c00 : 0x3f80;
  for (int i = 0; i < 9; ++i) {
    const auto value = std::bit_cast<std::array<std::byte, 2>>(i == 5 ? bits : one);
    data.bytes.insert(data.bytes.end(), value.begin(), value.end());
  }
  const absl::Status status = CheckScales(Module(), ".scales", data, sign);
  EXPECT_TRUE(status.ok() || absl::StrContains(status.message(), "element 5: ")) << status;
  return status.ok();
}

TEST(ReaderPartsTest, ChecksEverySixteenBitScaleAsItsNumberSays) {
  for (const std::string dtype : {"F16", "BF16"}) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const double value = DecodeNumber(FormatOfDtype(dtype), bits);
      const bool finite = std::isfinite(value);
      const auto code = static_cast<uint16_t>(bits);
      ASSERT_EQ(Accepts(dtype, code, ScaleSign::kAny), finite && value != 0) << dtype << " " << bits;
      ASSERT_EQ(Accepts(dtype, code, ScaleSign::kPositive), finite && value > 0) << dtype << " " << bits;
      ASSERT_EQ(Accepts(dtype, code, ScaleSign::kPositiveOrZero), finite && value >= 0)
          << dtype << " " << bits;
    }
  }
}

}  // namespace
}  // namespace gemmd
