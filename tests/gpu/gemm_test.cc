// Dense GEMMs on a GPU against the double-precision reference. `*Small*` is the part for
// compute-sanitizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/base/status.h"
#include "tests/gpu/gemm_fixture.h"

namespace gemmd::testing {
namespace {

using ::testing::HasSubstr;

std::vector<QuantSpec> SpecsOfEveryFormat() {
  std::vector<QuantSpec> specs;
  const std::vector<NumberFormat> scales = {kFloat16,    kBFloat16,   kFloat32,
                                            kFloat8E4M3, kFloat8E5M2, kFloat8E8M0};
  for (int bits = 1; bits <= 8; ++bits) {
    specs.push_back(
        Spec(IntegerFormat(bits), scales[static_cast<size_t>(bits) % scales.size()], 1, 20));
    specs.back().zero_point = static_cast<ZeroPointKind>(bits % 3);
  }
  for (const NumberFormat& format :
       {kFloat4E2M1, FloatFormat(0, 3), FloatFormat(3, 2), FloatFormat(2, 3), FloatFormat(0, 7),
        kFloat8E4M3, kFloat8E5M2, FloatFormat(3, 4)}) {
    specs.push_back(Spec(format, scales[specs.size() % scales.size()], 1, 32));
  }
  for (const NumberFormat& format : {kFloat16, kBFloat16, kFloat32})
    specs.push_back(Spec(format, kNoFormat, 1, 0));
  return specs;
}

TEST_F(GemmTest, SmallLayersOfEveryFormatMatchTheReference) {
  RunAll(SpecsOfEveryFormat(), {1, 70, 75}, CasesOfM({0, 1, 3, 17, 66}));
}

TEST_F(GemmTest, SmallIntegerValuesAreExactInEveryFormat) {
  std::vector<QuantSpec> specs;
  for (int bits = 1; bits <= 8; ++bits) {
    specs.push_back(Spec(IntegerFormat(bits), bits % 2 == 0 ? kFloat16 : kFloat8E8M0, 1, 16));
    specs.back().zero_point = bits % 3 == 0 ? ZeroPointKind::kInteger : ZeroPointKind::kNone;
    specs.back().bias = kFloat32;
  }
  specs.push_back(Spec(FloatFormat(0, 3), kBFloat16, 1, 16));
  specs.push_back(Spec(FloatFormat(0, 7), kFloat32, 1, 16));
  RunAll(specs, {1, 65, 61}, CasesOfM({1, 8, 24, 40, 56, 72}, {.integer_valued = true}),
         {.integer_valued = true});
}

TEST_F(GemmTest, SmallMatricesWithGapsAndOddBases) {
  QuantSpec spec = Spec(IntegerFormat(4), kFloat16, 1, 32);
  spec.bias = kBFloat16;
  std::vector<GemmCase> cases;
  for (const NumberFormat& type : {kFloat16, kBFloat16, kFloat32, kFloat8E4M3}) {
    const NumberFormat y_type = type.bits == 8 ? kFloat16 : type;
    cases.push_back({.m = 5, .x_type = type, .y_type = y_type, .x_gap = 7, .y_gap = 9, .shift = 1});
    cases.push_back(
        {.m = 67, .x_type = type, .y_type = y_type, .x_gap = 1, .y_gap = 1, .shift = 3});
  }
  RunAll({spec}, {1, 33, 41}, cases);
}

TEST_F(GemmTest, SmallGranularitiesOfScalesAndZeroPoints) {
  std::vector<QuantSpec> specs;
  for (const auto& [block_n, block_k] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 0}, {1, 0}, {0, 32}, {1, 32}, {1, 100}, {128, 128}, {48, 40}, {1, 1}}) {
    specs.push_back(Spec(kFloat8E4M3, kFloat32, block_n, block_k));
    specs.push_back(Spec(IntegerFormat(4), kFloat16, block_n, block_k));
    specs.back().zero_point = ZeroPointKind::kInteger;
  }
  specs.push_back(Spec(kFloat4E2M1, kFloat8E4M3, 1, 16));
  specs.back().secondary_scale = SecondaryScaleKind::kTensor;
  specs.push_back(Spec(IntegerFormat(4), kFloat16, 1, 24));
  specs.back().secondary_scale = SecondaryScaleKind::kChannel;
  specs.push_back(Spec(IntegerFormat(3), kFloat16, 1, 24));
  specs.back().has_group_index = true;
  specs.back().zero_point = ZeroPointKind::kFloat;
  RunAll(specs, {1, 130, 250}, CasesOfM({2, 65}));
}

TEST_F(GemmTest, MatchesForEveryM) {
  QuantSpec spec = Spec(IntegerFormat(4), kFloat16, 1, 128);
  spec.bias = kFloat16;
  const std::vector<int64_t> sizes = {0, 1, 3, 8, 17, 24, 40, 64, 65, 257};
  RunAll({spec}, {1, 130, 250}, CasesOfM(sizes, {.y_type = kFloat16, .sampled = 64}));
  RunAll({spec}, {1, 2112, 10944},
         CasesOfM(sizes, {.x_type = kBFloat16, .y_type = kBFloat16, .sampled = 24}));
}

TEST_F(GemmTest, ShapesThatOtherLibrariesRefused) {
  const std::vector<GemmCase> cases = CasesOfM({1, 17}, {.sampled = 16});
  RunAll({Spec(kFloat8E4M3, kFloat32, 128, 128)}, {1, 576, 1152}, cases);
  RunAll({Spec(kFloat8E4M3, kFloat32, 128, 128)}, {1, 2112, 7168}, cases);
  RunAll({Spec(kFloat4E2M1, kFloat8E8M0, 1, 32)}, {1, 2880, 2880}, cases);
  RunAll({Spec(kFloat4E2M1, kFloat8E8M0, 1, 32)}, {1, 2880, 360}, cases);
  RunAll({Spec(IntegerFormat(4), kFloat16, 1, 512)}, {1, 256, 768}, cases);
  RunAll({Spec(IntegerFormat(4), kFloat16, 1, 64)}, {1, 8192, 7392}, cases);
}

TEST_F(GemmTest, ActivationScalesStaticTokenAndGroup) {
  std::vector<QuantSpec> specs;
  for (const auto& [format, weight] :
       {std::pair(kInt8, IntegerFormat(8)), {kFloat8E4M3, kFloat8E4M3}}) {
    QuantSpec spec = Spec(weight, kFloat32, 1, 0);
    spec.activation = format;
    spec.activation_scale = ActivationScaleKind::kStaticTensor;
    // The tensor unit keeps about 14 bits of sums of 8-bit floats.
    const GemmCase base{
        .x_type = format, .y_type = kBFloat16, .sum_bits = format == kInt8 ? 19 : 11};
    RunAll({spec}, {1, 130, 250}, CasesOfM({1, 40}, base));
    GemmCase token = base;
    token.x_scale_columns = 1;
    RunAll({spec}, {1, 130, 250}, CasesOfM({1, 40}, token));
    spec.activation_scale = ActivationScaleKind::kDynamicGroup;
    spec.activation_group = 128;
    GemmCase group = base;
    group.x_scale_columns = 2;
    RunAll({spec}, {1, 130, 250}, CasesOfM({1, 40}, group));
  }
}

// A copy of row 0 of `x` at row `row` of a larger matrix.
HostMatrix WithRowAt(const HostMatrix& x, int64_t rows, int64_t row, Random& random) {
  HostMatrix larger = RandomMatrix(x.type, rows, x.columns, random);
  for (int64_t k = 0; k < x.columns; ++k) larger.set(row, k, x.at(0, k));
  return larger;
}

TEST_F(GemmTest, SmallRunsGiveTheSameBitsEveryTime) {
  const StandardTensor tensor =
      RandomTensor(Spec(IntegerFormat(4), kFloat16, 1, 32), {1, 100, 300}, random_);
  const auto layer = runner().Load(tensor);
  ASSERT_NE(layer, nullptr);
  for (const int64_t m : {1, 16, 40, 130}) {
    const HostMatrix x = RandomMatrix(kBFloat16, m, 300, random_);
    const HostMatrix first = Multiply(runner(), layer, x, kFloat32);
    for (int i = 0; i < 5; ++i)
      EXPECT_EQ(Multiply(runner(), layer, x, kFloat32).bytes, first.bytes);
  }
}

TEST_F(GemmTest, SmallBatchInvariantRunsGiveTheSameBitsAtEveryM) {
  const StandardTensor tensor =
      RandomTensor(Spec(IntegerFormat(4), kFloat16, 1, 32), {1, 100, 300}, random_);
  const auto layer = runner().Load(tensor);
  ASSERT_NE(layer, nullptr);
  const HostMatrix x = RandomMatrix(kBFloat16, 1, 300, random_);
  const HostMatrix alone = Multiply(runner(), layer, x, kFloat32, {.batch_invariant = true});
  EXPECT_EQ(Multiply(runner(), layer, x, kFloat32, {.batch_invariant = true}).bytes, alone.bytes);
  for (const auto& [rows, row] :
       std::vector<std::pair<int64_t, int64_t>>{{2, 1}, {17, 9}, {64, 63}, {200, 130}}) {
    const HostMatrix y =
        Multiply(runner(), layer, WithRowAt(x, rows, row, random_), kFloat32, {.batch_invariant = true});
    for (int64_t n = 0; n < 100; ++n)
      ASSERT_EQ(y.bits_at(row, n), alone.bits_at(0, n)) << rows << ", " << n;
  }
}

TEST_F(GemmTest, SmallSpecialValuesStayInTheirRowAndColumn) {
  StandardTensor tensor = RandomTensor(Spec(kFloat4E2M1, kFloat8E8M0, 1, 32), {1, 40, 70}, random_);
  // Code 2 stands for 1, so that no weight of column 7 is 0.
  for (int64_t n = 0; n < 40; ++n) SetCode(tensor.codes, n * tensor.spec.RowWords(70), 4, 7, 2);
  tensor.scales[5 * 3 + 2] = std::byte{255};  // row 5: a NaN group, the last and partial one
  tensor.scales[6 * 3 + 1] = std::byte{0};    // row 6: 2^-127
  const auto layer = runner().Load(tensor);
  ASSERT_NE(layer, nullptr);
  HostMatrix x = RandomMatrix(kBFloat16, 4, 70, random_);
  x.set(1, 7, HUGE_VAL);
  x.set(2, 69, std::nan(""));
  const HostMatrix y = Multiply(runner(), layer, x, kFloat32);
  for (int64_t n = 0; n < 40; ++n) {
    if (n == 5) {
      for (int64_t m = 0; m < 4; ++m) EXPECT_TRUE(std::isnan(y.at(m, n))) << m;
      continue;
    }
    EXPECT_EQ(y.at(1, n), HUGE_VAL) << n;
    EXPECT_TRUE(std::isnan(y.at(2, n))) << n;
    const ExactSum sum = ExactDot(MatrixRow(x, 3), WeightRow(tensor, 0, n));
    EXPECT_NEAR(y.at(3, n), sum.value, Tolerance(sum, kFloat32)) << n;
  }
}

TEST_F(GemmTest, OverflowGivesInfinityAsIeeeRounding) {
  const StandardTensor tensor =
      RandomTensor(Spec(IntegerFormat(8), kNoFormat, 1, 0), {1, 8, 64}, random_);
  const auto layer = runner().Load(tensor);
  ASSERT_NE(layer, nullptr);
  HostMatrix x = RandomMatrix(kFloat16, 1, 64, random_);
  for (int64_t k = 0; k < 64; ++k) x.set(0, k, 60000);
  const HostMatrix y = Multiply(runner(), layer, x, kFloat16);
  for (int64_t n = 0; n < 8; ++n) {
    const double exact = ExactDot(MatrixRow(x, 0), WeightRow(tensor, 0, n)).value;
    if (std::abs(exact) <= 70000) continue;
    EXPECT_EQ(y.at(0, n), std::copysign(HUGE_VAL, exact)) << exact;
  }
}

// Squared error of `layer`'s float32 result, and of what it replaces: weights rounded to the activations'
// type, products summed in float32.
// Of exact weights only the sums' own errors are left; the unit's and a loop's are alike, neither is always smaller.
constexpr double kSumError = 0x1p-22;  // of the terms' magnitude
struct SquaredErrors {
  double ours = 0;
  double dequantized = 0;
  double of_sums = 0;
};
SquaredErrors CompareWithDequantized(const StandardTensor& tensor, const HostMatrix& x,
                                     const HostMatrix& y) {
  SquaredErrors errors;
  for (int64_t n = 0; n < tensor.shape.n; ++n) {
    const std::vector<double> weights = WeightRow(tensor, 0, n);
    for (int64_t m = 0; m < x.rows; ++m) {
      const std::vector<double> activations = MatrixRow(x, m);
      const ExactSum exact_sum = ExactDot(activations, weights);
      const double exact = exact_sum.value;
      float sum = 0;
      for (size_t k = 0; k < weights.size(); ++k) {
        const double rounded = DecodeNumber(x.type, EncodeNumber(x.type, weights[k]));
        sum += static_cast<float>(activations[k]) * static_cast<float>(rounded);
      }
      errors.ours += (y.at(m, n) - exact) * (y.at(m, n) - exact);
      errors.dequantized += (sum - exact) * (sum - exact);
      errors.of_sums += exact_sum.magnitude * kSumError * exact_sum.magnitude * kSumError;
    }
  }
  return errors;
}

TEST_F(GemmTest, IsAtLeastAsExactAsDequantizingToSixteenBits) {
  std::vector<QuantSpec> specs = {
      Spec(IntegerFormat(4), kFloat16, 1, 128), Spec(IntegerFormat(4), kBFloat16, 1, 128),
      Spec(kFloat8E4M3, kFloat32, 128, 128), Spec(kFloat4E2M1, kFloat8E8M0, 1, 32),
      Spec(IntegerFormat(8), kFloat32, 1, 0)};
  for (const QuantSpec& spec : specs) {
    const StandardTensor tensor = RandomTensor(spec, {1, 64, 1000}, random_);
    const auto layer = runner().Load(tensor);
    ASSERT_NE(layer, nullptr);
    for (const NumberFormat& type : {kFloat16, kBFloat16}) {
      for (const int64_t m : {16, 264}) {
        const HostMatrix x = RandomMatrix(type, m, 1000, random_);
        const HostMatrix y = Multiply(runner(), layer, x, kFloat32);
        const SquaredErrors errors = CompareWithDequantized(tensor, x, y);
        // Many rows of x may meet the same rounded weights; the sums' own error remains.
        EXPECT_LE(errors.ours, errors.dequantized * (m == 16 ? 1 : 1.001) + errors.of_sums)
            << "bits of weights " << int{spec.weight.bits} << ", M " << m;
      }
    }
  }
}

// Rows of x past 2^31 elements. Only the first and last rows are defined.
TEST_F(GemmTest, IndexesActivationsBeyondTwoToThe31) {
  constexpr int64_t kK = 4096;
  constexpr int64_t kRows = (int64_t{1} << 31) / kK + 70;
  const StandardTensor tensor =
      RandomTensor(Spec(IntegerFormat(4), kFloat16, 1, 128), {1, 8, kK}, random_);
  const auto layer = runner().Load(tensor);
  ASSERT_NE(layer, nullptr);
  auto x = device().Allocate(kRows * kK * 2);
  auto y = device().Allocate(kRows * 8 * 4);
  if (!x.ok() || !y.ok()) GTEST_SKIP() << "the GPU has no 4.3 GB free";
  const HostMatrix rows = RandomMatrix(kFloat16, 3, kK, random_);
  const uintptr_t last = (*x)->address() + (kRows - 3) * kK * 2;
  ASSERT_TRUE(device().CopyIn((*x)->address(), rows.bytes).ok());
  ASSERT_TRUE(device().CopyIn(last, rows.bytes).ok());
  GemmCall call;
  call.layer = layer;
  call.x = {(*x)->address(), kFloat16, false, kRows, kK, kK};
  call.y = {(*y)->address(), kFloat32, false, kRows, 8, 8};
  const absl::StatusOr<CallReport> report = device().RunGemm(runner().stream(), call);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  HostMatrix got = PoisonedMatrix(kFloat32, 3, 8);
  for (const int64_t first : {int64_t{0}, kRows - 3}) {
    ASSERT_TRUE(device().CopyOut((*y)->address() + first * 8 * 4, absl::MakeSpan(got.bytes)).ok());
    CompareGemm(tensor, {.sum_bits = 11}, rows, std::nullopt, got, random_);  // rounded weights
  }
}

// Codes past 2^31 bytes.
TEST_F(GemmTest, IndexesWeightsBeyondTwoToThe31) {
  StandardTensor tensor;
  tensor.spec = Spec(IntegerFormat(8), kFloat16, 0, 0);
  tensor.shape = {1, (int64_t{1} << 20) + 2, 2304};
  tensor.scale_columns = 1;
  tensor.scales.resize(2);
  SetNumber(kFloat16, tensor.scales, 0, 0.125);
  tensor.codes.resize(static_cast<size_t>(tensor.shape.n * tensor.shape.k));
  Buffer pattern((1 << 20) + 13);  // a length that no row is a multiple of
  for (std::byte& byte : pattern) byte = static_cast<std::byte>(random_());
  for (size_t at = 0; at < tensor.codes.size(); at += pattern.size()) {
    const size_t count = std::min(pattern.size(), tensor.codes.size() - at);
    std::copy(pattern.begin(), pattern.begin() + static_cast<int64_t>(count),
              tensor.codes.begin() + static_cast<int64_t>(at));
  }
  auto layer = device().LoadLayer(tensor);
  if (ReasonOf(layer.status()) == "GPU_OOM") GTEST_SKIP() << layer.status().ToString();
  ASSERT_TRUE(layer.ok()) << layer.status().ToString();
  RunGemmCase(runner(), tensor, *layer, {.m = 2, .sampled = 40}, random_);
}

}  // namespace
}  // namespace gemmd::testing
