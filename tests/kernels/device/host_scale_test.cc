// The kernel that only multiplies x by the factors of its columns, block by block on the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/contract/element_format.h"
#include "tests/kernels/device/host_quantize.h"
#include "tests/kernels/quantize_inputs.h"
#include "tests/kernels/random_layer.h"

namespace gemmd::testing {
namespace {

constexpr std::byte kUnscaled{0xff};

struct ScaleCase {
  int64_t m = 6;
  int64_t k = 300;
  int64_t slice = 0;   // 0 = the row
  int64_t gap = 0;     // elements between rows of x
  int64_t shift = 0;   // elements from a multiple of 16 bytes
  int64_t offset = 0;  // of the factors, likewise
};

template <ElementType kX>
constexpr ElementType kCodeOf = ElementBytes(kX) == 1 ? ElementType::kFloat32 : kX;

// Start of a copy of `bytes` in `memory`, `shift` bytes from a multiple of 16.
std::byte* PlaceAt(const Buffer& bytes, int64_t shift, std::vector<std::byte>& memory) {
  memory.resize(bytes.size() + 32 + static_cast<size_t>(shift));
  const uintptr_t aligned = (reinterpret_cast<uintptr_t>(memory.data()) + 15) / 16 * 16;
  auto* const at = reinterpret_cast<std::byte*>(aligned) + shift;
  std::copy(bytes.begin(), bytes.end(), at);
  return at;
}

std::vector<float> RandomFactors(int64_t count, Random& random) {
  std::vector<float> factors;
  for (int64_t i = 0; i < count; ++i) factors.push_back(static_cast<float>(Uniform(random, -4, 4)));
  return factors;
}

template <ElementType kX>
void ExpectProducts(const ScaleCase& c, const HostMatrix& x, Random& random) {
  constexpr ElementType kCode = kCodeOf<kX>;
  SCOPED_TRACE(::testing::Message() << "k " << c.k << ", gap " << c.gap << ", shift " << c.shift);
  const NumberFormat type = FormatOf(kCode);
  const std::vector<float> factors = RandomFactors(c.k, random);
  Buffer factor_bytes(factors.size() * sizeof(float));
  std::memcpy(factor_bytes.data(), factors.data(), factor_bytes.size());
  const int64_t per_line = 16 / ElementBytes(kCode);
  const int64_t stride = (c.k + per_line - 1) / per_line * per_line + per_line;
  HostMatrix codes = PoisonedMatrix(type, c.m, c.k, stride);
  std::vector<std::byte> x_memory;
  std::vector<std::byte> factor_memory;
  std::vector<std::byte> code_memory;
  QuantizeArgs args{};
  args.x = PlaceAt(x.bytes, c.shift * ElementBytes(kX), x_memory);
  args.codes = PlaceAt(codes.bytes, 0, code_memory);
  args.input_scale = reinterpret_cast<const float*>(
      PlaceAt(factor_bytes, c.offset * int64_t{sizeof(float)}, factor_memory));
  args.x_row_stride = x.row_stride;
  args.codes_row_stride = stride;
  args.m = c.m;
  args.k = c.k;
  args.slice_columns = c.slice == 0 ? c.k : c.slice;
  HostQuantize<HostQuantizeConfig<kX, kCode, QuantizeMode::kNone, 128, InputActivation::kNone, 0, 64,
                                  true>>::Run(args);
  std::memcpy(codes.bytes.data(), args.codes, codes.bytes.size());
  for (int64_t row = 0; row < c.m; ++row) {
    for (int64_t k = 0; k < c.k; ++k) {
      const float product = static_cast<float>(x.at(row, k)) * factors[static_cast<size_t>(k)];
      if (std::isnan(product)) {
        ASSERT_TRUE(std::isnan(codes.at(row, k))) << row << ", " << k;
      } else {
        ASSERT_EQ(codes.bits_at(row, k), EncodeNumber(type, product)) << row << ", " << k;
      }
    }
    const auto* const gap = codes.bytes.data() + (row * stride + c.k) * codes.element_bytes();
    for (int64_t i = 0; i < (stride - c.k) * codes.element_bytes(); ++i) {
      ASSERT_EQ(gap[i], kUnscaled) << "written past the row";
    }
  }
}

const std::vector<ScaleCase> kCases = {
    {.k = 1},
    {.k = 16},
    {.k = 301, .gap = 3},
    {.k = 512, .shift = 1},
    {.k = 512, .offset = 1},
    {.k = 5003, .slice = 2048, .gap = 5, .shift = 3, .offset = 2}};

template <ElementType kX>
void ExpectProductsOfEveryKind() {
  Random random(31);
  for (const ScaleCase& c : kCases) {
    const HostMatrix x = RowsOfEveryKind(FormatOf(kX), c.m, c.k, c.gap, random);
    ASSERT_NO_FATAL_FAILURE(ExpectProducts<kX>(c, x, random));
  }
}

TEST(HostScaleTest, ProductsAreRoundedToTheTypeOfX) {
  ExpectProductsOfEveryKind<ElementType::kBFloat16>();
  ExpectProductsOfEveryKind<ElementType::kFloat16>();
  ExpectProductsOfEveryKind<ElementType::kFloat32>();
}

TEST(HostScaleTest, ProductsOfEightBitXAreFloat32) {
  Random random(37);
  for (const ScaleCase& c : kCases) {
    for (const ElementType type : {ElementType::kFloat8E4M3, ElementType::kFloat8E5M2, ElementType::kInt8}) {
      const HostMatrix x = RandomMatrix(FormatOf(type), c.m, c.k, random, false, c.k + c.gap);
      if (type == ElementType::kFloat8E4M3) ExpectProducts<ElementType::kFloat8E4M3>(c, x, random);
      if (type == ElementType::kFloat8E5M2) ExpectProducts<ElementType::kFloat8E5M2>(c, x, random);
      if (type == ElementType::kInt8) ExpectProducts<ElementType::kInt8>(c, x, random);
      ASSERT_FALSE(::testing::Test::HasFatalFailure());
    }
  }
}

TEST(RoundPairTest, PutsTheFirstElementIntoTheLowHalf) {
  EXPECT_EQ(device::RoundPair<ElementType::kBFloat16>(1, -2), 0xc0003f80u);
  EXPECT_EQ(device::RoundPair<ElementType::kFloat16>(1, 70000), 0x7c003c00u) << "beyond 65504: infinite";
}

}  // namespace
}  // namespace gemmd::testing
