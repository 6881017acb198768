// The Hadamard transform of x: against the matrix in double precision, and bit by bit against the parts of the kernel.
#include "core/quant/hadamard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernels/device/host_quantize.h"
#include "tests/support/random_tensor.h"

namespace gemmd {
namespace {

using testing::Random;

std::vector<double> RandomRow(int64_t columns, uint64_t seed) {
  Random random(seed);
  std::normal_distribution<float> normal;
  std::vector<double> row(static_cast<size_t>(columns));
  for (double& value : row) value = normal(random);
  return row;
}

// Element `i` of H b / sqrt(block), b the block of `row` that holds it.
double MatrixProduct(const std::vector<double>& row, int64_t block, int64_t i) {
  const int64_t first = i / block * block;
  double sum = 0;
  for (int64_t j = 0; j < block; ++j) {
    const bool is_negative = std::popcount(static_cast<uint64_t>((i - first) & j)) % 2 != 0;
    const double value = row[static_cast<size_t>(first + j)];
    sum += is_negative ? -value : value;
  }
  return sum / std::sqrt(static_cast<double>(block));
}

// Each of log2(block) sums and the product round by 2^-24 of at most the sum of magnitudes.
TEST(HadamardTest, IsTheProductWithTheMatrix) {
  for (int64_t block = 2; block <= 1024; block *= 2) {
    const std::vector<double> row = RandomRow(3 * block, 11);
    std::vector<double> got = row;
    TransformByHadamard(block, absl::MakeSpan(got));
    for (int64_t i = 0; i < 3 * block; ++i) {
      double magnitude = 0;
      for (int64_t j = 0; j < block; ++j) {
        magnitude += std::fabs(row[static_cast<size_t>(i / block * block + j)]);
      }
      const double bound =
          (std::log2(block) + 2) * 0x1p-24 * magnitude / std::sqrt(static_cast<double>(block));
      ASSERT_NEAR(got[static_cast<size_t>(i)], MatrixProduct(row, block, i), bound)
          << "block " << block << ", column " << i;
    }
  }
}

TEST(HadamardTest, SmallIntegersInBlocksOfPowersOfFourAreExact) {
  std::vector<double> row = {1, 2, 3, 4, -1, 0, 0, 1};
  TransformByHadamard(4, absl::MakeSpan(row));
  EXPECT_EQ(row, (std::vector<double>{5, -1, -2, 0, 0, -1, -1, 0}));
}

TEST(HadamardTest, ANanOrInfinityStaysInItsBlock) {
  std::vector<double> row(24, 1);
  row[9] = std::nan("");
  row[17] = std::numeric_limits<double>::infinity();
  TransformByHadamard(8, absl::MakeSpan(row));
  for (size_t i = 0; i < row.size(); ++i) EXPECT_EQ(std::isfinite(row[i]), i < 8) << i;
}

template <int kBlock>
void ExpectBitsOfTheKernel() {
  using Config = testing::HostQuantizeConfig<ElementType::kFloat32, ElementType::kFloat32, QuantizeMode::kNone, 128,
                                             InputActivation::kNone, kBlock, 256>;
  constexpr int64_t kColumns = 5 * kBlock;
  std::vector<double> expected = RandomRow(kColumns, kBlock);
  std::vector<float> x(expected.begin(), expected.end());
  std::vector<float> got(x.size() + 4);
  TransformByHadamard(kBlock, absl::MakeSpan(expected));
  QuantizeArgs args{};
  args.x = x.data();
  args.codes = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(got.data()) + 15) / 16 * 16);
  args.m = 1;
  args.k = args.slice_columns = args.x_row_stride = args.codes_row_stride = kColumns;
  testing::HostQuantize<Config>::Run(args);
  for (int64_t i = 0; i < kColumns; ++i) {
    ASSERT_EQ(static_cast<const float*>(args.codes)[i], expected[static_cast<size_t>(i)])
        << "block " << kBlock << ", column " << i;
  }
}

TEST(HadamardTest, HasTheBitsOfTheKernel) {
  ExpectBitsOfTheKernel<2>();
  ExpectBitsOfTheKernel<4>();
  ExpectBitsOfTheKernel<8>();
  ExpectBitsOfTheKernel<32>();
  ExpectBitsOfTheKernel<128>();
  ExpectBitsOfTheKernel<512>();
  ExpectBitsOfTheKernel<1024>();
}

}  // namespace
}  // namespace gemmd
