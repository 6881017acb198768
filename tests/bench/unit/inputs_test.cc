// Random layers and the check of results: a right result passes, every kind of wrong one does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/quant/reference.h"
#include "tests/bench/host/check.h"
#include "tests/bench/host/random_inputs.h"

namespace gemmd::bench {
namespace {

constexpr int64_t kN = 40;
constexpr int64_t kK = 300;  // no multiple of a group or a word
constexpr int64_t kM = 3;

class EveryFormatTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    format_ = *FindFormat(GetParam());
    tensor_ = RandomLayer(format_.spec, kN, kK, 7);
    const Buffer x = RandomActivations(format_.x, kM * kK, 8);
    const size_t row_bytes = static_cast<size_t>(kK * format_.x.bits / 8);
    for (size_t row = 0; row < kM; ++row) {
      x_.emplace_back(x.begin() + static_cast<int64_t>(row * row_bytes),
                      x.begin() + static_cast<int64_t>((row + 1) * row_bytes));
      if (const int64_t columns = format_.XScaleColumns(kK); columns > 0) {
        x_scales_.push_back(RandomActivationScales(format_.x, columns, row));
      }
    }
  }

  double X(size_t row, int64_t k) const {
    const int bytes = format_.x.bits / 8;
    uint32_t code = 0;
    std::memcpy(&code, x_[row].data() + k * bytes, static_cast<size_t>(bytes));
    const double value =
        format_.x == kInt8 ? static_cast<int8_t>(code) : DecodeNumber(format_.x, code);
    if (x_scales_.empty()) return value;
    const int64_t group = format_.x_scale_group > 0 ? format_.x_scale_group : kK;
    return value * static_cast<double>(x_scales_[row][static_cast<size_t>(k / group)]);
  }

  // What a right kernel stores.
  std::vector<Buffer> RightResult() const {
    std::vector<Buffer> y(kM, Buffer(kN * 2));
    std::vector<double> w(kK);
    for (int64_t n = 0; n < kN; ++n) {
      DequantizeRow(tensor_, 0, n, absl::MakeSpan(w));
      for (size_t row = 0; row < kM; ++row) {
        double sum = 0;
        for (int64_t k = 0; k < kK; ++k) sum += X(row, k) * w[static_cast<size_t>(k)];
        const auto code = static_cast<uint16_t>(EncodeNumber(format_.y, sum));
        std::memcpy(y[row].data() + n * 2, &code, 2);
      }
    }
    return y;
  }

  BenchFormat format_;
  StandardTensor tensor_;
  std::vector<Buffer> x_;
  std::vector<std::vector<float>> x_scales_;
};

TEST_P(EveryFormatTest, RandomLayersAreValidAndNotDegenerate) {
  EXPECT_TRUE(Validate(tensor_).ok()) << Validate(tensor_);
  std::vector<double> w(kK);
  double norm = 0;
  for (int64_t n = 0; n < kN; ++n) {
    DequantizeRow(tensor_, 0, n, absl::MakeSpan(w));
    for (const double value : w) {
      ASSERT_TRUE(std::isfinite(value));
      norm += value * value;
    }
  }
  const double deviation = std::sqrt(norm / (kN * kK));
  EXPECT_GT(deviation, 1e-4);
  EXPECT_LT(deviation, 2);  // sums of ten thousand products stay inside float16
}

TEST_P(EveryFormatTest, ARightResultPasses) {
  const CheckResult result =
      SampleChecker(format_, tensor_, 1).Compare(x_, x_scales_, RightResult());
  EXPECT_TRUE(result.passed) << result.error << " against " << result.control_error;
  EXPECT_EQ(result.elements, kM * kN);
  EXPECT_EQ(result.unwritten, 0);
}

TEST_P(EveryFormatTest, OneUnwrittenElementFails) {
  std::vector<Buffer> y = RightResult();
  y[1][10] = y[1][11] = std::byte{kPoisonByte};
  const CheckResult result = SampleChecker(format_, tensor_, 1).Compare(x_, x_scales_, y);
  EXPECT_FALSE(result.passed);
  EXPECT_EQ(result.unwritten, 1);
}

TEST_P(EveryFormatTest, SwappedColumnsFail) {
  std::vector<Buffer> y = RightResult();
  for (Buffer& row : y) std::swap_ranges(row.begin(), row.begin() + 2, row.begin() + 2);
  EXPECT_FALSE(SampleChecker(format_, tensor_, 1).Compare(x_, x_scales_, y).passed);
}

INSTANTIATE_TEST_SUITE_P(Formats, EveryFormatTest, ::testing::ValuesIn(FormatNames()),
                         [](const auto& info) { return info.param; });

TEST(RandomInputsTest, TheSameSeedGivesTheSameLayer) {
  const QuantSpec spec = FindFormat("w4a16_int4_g128")->spec;
  EXPECT_EQ(RandomLayer(spec, 8, 64, 3).codes, RandomLayer(spec, 8, 64, 3).codes);
  EXPECT_NE(RandomLayer(spec, 8, 64, 3).codes, RandomLayer(spec, 8, 64, 4).codes);
}

TEST(RandomInputsTest, ActivationsAreNormalValues) {
  const int64_t count = 100000;
  const Buffer x = RandomActivations(kBFloat16, count, 5);
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint16_t code;
    std::memcpy(&code, x.data() + i * 2, 2);
    const double value = DecodeNumber(kBFloat16, code);
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / count, 0, 0.02);
  EXPECT_NEAR(squares / count, 1, 0.03);
}

TEST(CheckTest, SampledRowsHoldTheFirstAndTheLast) {
  const std::vector<int64_t> rows = SampleRows(8192, 4, 9);
  EXPECT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows.front(), 0);
  EXPECT_EQ(rows.back(), 8191);
  EXPECT_THAT(SampleRows(3, 4, 9), ::testing::ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace gemmd::bench
