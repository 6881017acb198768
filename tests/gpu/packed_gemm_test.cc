// Dense GEMMs by the kernels for packed weights (SM90). `*Small*` is the part for compute-sanitizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/gpu/gemm_fixture.h"

namespace gemmd::testing {
namespace {

using ::testing::HasSubstr;

// Layers that kernels for packed weights serve on SM90, each at sizes of M in every range.
class PackedGemmTest : public GemmTest {
 protected:
  void SetUp() override {
    GemmTest::SetUp();
    if (IsSkipped()) return;
    if (device().description().architecture != "sm_90a") GTEST_SKIP() << "needs SM90";
  }

  static std::vector<GemmCase> Cases(const std::vector<int64_t>& sizes,
                                     const std::vector<NumberFormat>& x_types) {
    std::vector<GemmCase> cases;
    for (const int64_t m : sizes) {
      const bool odd = cases.size() % 2 != 0;
      cases.push_back({.m = m,
                       .x_type = x_types[cases.size() % x_types.size()],
                       .y_type = odd ? kFloat32 : kBFloat16,
                       .x_gap = 3,
                       .y_gap = 5,
                       .shift = odd ? 1 : 0,
                       .sampled = 40});
    }
    return cases;
  }

  void RunPacked(const std::vector<QuantSpec>& specs, const LayerShape& shape,
                 const std::vector<GemmCase>& cases, const LayerOptions& options = {}) {
    for (const QuantSpec& spec : specs) {
      StandardTensor tensor = RandomTensor(spec, shape, random_, options);
      if (spec.zero_point == ZeroPointKind::kInteger) LimitZeroPoints(tensor);
      const auto layer = runner().Load(tensor);
      ASSERT_NE(layer, nullptr);
      for (GemmCase c : cases) {
        // The tensor unit keeps about 14 bits of sums of 8-bit floats.
        if (c.x_type.bits == 8 && c.x_type != kInt8) c.sum_bits = 11;
        AllowRounding(spec, shape, c);
        if (c.shift == 0) c.x_gap = 32 - shape.k % 16;  // rows start at multiples of 16 elements
        const GemmRun run = RunGemmCase(runner(), tensor, layer, c, random_);
        EXPECT_THAT(run.report.kernel, HasSubstr("gemm_sm90"))
            << device().Explain(*layer, c.m)->choice.reason;
        ASSERT_FALSE(HasFailure()) << run.report.kernel << ", M " << c.m << ", N " << shape.n
                                   << ", K " << shape.k << ", shift " << c.shift;
      }
    }
  }

 private:
  // A zero point of 256 goes to the generic kernel.
  static void LimitZeroPoints(StandardTensor& tensor) {
    for (size_t at = 0; at < tensor.zero_points.size(); at += 2) {
      int16_t zero;
      std::memcpy(&zero, tensor.zero_points.data() + at, 2);
      zero = std::min<int16_t>(zero, 255);
      std::memcpy(tensor.zero_points.data() + at, &zero, 2);
    }
  }
};

std::vector<NumberFormat> WideFormats() {
  std::vector<NumberFormat> formats;
  for (int bits = 1; bits <= 8; ++bits) formats.push_back(IntegerFormat(bits));
  for (const NumberFormat& format :
       {kFloat4E2M1, FloatFormat(0, 3), FloatFormat(1, 1), FloatFormat(2, 2), FloatFormat(3, 2),
        FloatFormat(2, 3), FloatFormat(3, 3), kFloat8E4M3, kFloat8E5M2, FloatFormat(3, 4),
        FloatFormat(1, 6), FloatFormat(0, 7)}) {
    formats.push_back(format);
  }
  return formats;
}

TEST_F(PackedGemmTest, LayersOfEveryFormatWithSixteenBitActivations) {
  std::vector<QuantSpec> specs;
  const std::vector<NumberFormat> scales = {kFloat16,    kBFloat16,   kFloat32,
                                            kFloat8E4M3, kFloat8E5M2, kFloat8E8M0};
  const std::vector<int64_t> groups = {128, 16, 64, 0, 32, 48, 256};
  for (const NumberFormat& format : WideFormats()) {
    const size_t i = specs.size();
    specs.push_back(Spec(format, scales[i % scales.size()], 1, groups[i % groups.size()]));
    if (format.kind == NumberKind::kInteger && i % 2 == 1) {
      specs.back().zero_point = ZeroPointKind::kInteger;
    }
    specs.back().secondary_scale = static_cast<SecondaryScaleKind>(i % 3);
    if (i % 2 == 0) specs.back().bias = kBFloat16;
  }
  RunPacked(specs, {1, 200, 652},
            Cases({1, 9, 17, 33, 65, 129, 257, 300, 520}, {kBFloat16, kFloat16}));
}

TEST_F(PackedGemmTest, SmallLayersOfEveryGranularity) {
  std::vector<QuantSpec> specs;
  const std::vector<NumberFormat> scales = {kFloat16,    kBFloat16,   kFloat32,
                                            kFloat8E4M3, kFloat8E5M2, kFloat8E8M0};
  for (const int64_t group : {16, 32, 48, 64, 128, 256, 0}) {
    specs.push_back(Spec(IntegerFormat(4), scales[specs.size() % scales.size()], 1, group));
    specs.back().zero_point =
        specs.size() % 2 == 0 ? ZeroPointKind::kInteger : ZeroPointKind::kNone;
    specs.back().secondary_scale = static_cast<SecondaryScaleKind>(specs.size() % 3);
  }
  specs.push_back(Spec(IntegerFormat(4), kFloat32, 0, 0));
  specs.push_back(Spec(IntegerFormat(4), kFloat32, 96, 128));
  specs.push_back(Spec(IntegerFormat(4), kNoFormat, 1, 0));
  for (const NumberFormat& scale : {kFloat8E4M3, kFloat8E8M0}) {
    for (const int64_t group : {16, 32, 128}) specs.push_back(Spec(kFloat4E2M1, scale, 1, group));
  }
  RunPacked(specs, {1, 130, 652}, Cases({2, 16, 40, 128}, {kFloat16, kBFloat16}));
  RunPacked({specs[4]}, {1, 576, 1152}, CasesOfM({1, 16, 17, 32, 64, 128, 257}, {.sampled = 24}));
}

TEST_F(PackedGemmTest, SmallLayersWithFloatingPointZeroPoints) {
  std::vector<QuantSpec> specs;
  const std::vector<NumberFormat> scales = {kFloat16, kBFloat16, kFloat32, kFloat8E4M3, kNoFormat, kFloat8E8M0};
  const std::vector<int64_t> groups = {128, 16, 64, 0, 48, 256};
  for (int bits = 1; bits <= 8; ++bits) {
    const size_t i = specs.size();
    specs.push_back(Spec(IntegerFormat(bits), scales[i % scales.size()], 1, groups[i % groups.size()]));
    specs.back().secondary_scale = static_cast<SecondaryScaleKind>(i % 3);
    if (i % 2 == 0) specs.back().bias = kBFloat16;
  }
  specs.push_back(Spec(IntegerFormat(4), kFloat32, 0, 0));
  specs.push_back(Spec(IntegerFormat(4), kBFloat16, 96, 128));
  for (QuantSpec& spec : specs) spec.zero_point = ZeroPointKind::kFloat;
  RunPacked(specs, {1, 130, 652}, Cases({1, 16, 40, 65, 130, 264}, {kFloat16, kBFloat16}));
  RunPacked(specs, {1, 65, 250}, CasesOfM({1, 17, 72, 130, 264}, {.integer_valued = true}), {.integer_valued = true});
}

// With scales of 8-bit activations: none, per row, and static.
TEST_F(PackedGemmTest, LayersOfEveryFormatWithEightBitActivations) {
  const std::vector<NumberFormat> scales = {kBFloat16, kFloat32, kFloat16, kFloat8E8M0};
  const std::vector<int64_t> groups = {128, 0, 32, 64};
  const auto specs_for = [&](const NumberFormat& x, const std::vector<NumberFormat>& weights) {
    std::vector<QuantSpec> specs;
    for (const NumberFormat& weight : weights) {
      const size_t i = specs.size();
      specs.push_back(Spec(weight, scales[i % scales.size()], 1, groups[i / 2 % groups.size()]));
      specs.back().activation = x;
      specs.back().activation_scale =
          i % 3 == 0 ? ActivationScaleKind::kStaticTensor : ActivationScaleKind::kDynamicToken;
      if (i % 2 == 0) specs.back().bias = kFloat32;
    }
    return specs;
  };
  std::vector<NumberFormat> integers;
  for (int bits = 1; bits <= 8; ++bits) integers.push_back(IntegerFormat(bits));
  std::vector<NumberFormat> floats = {kFloat4E2M1,       FloatFormat(0, 3), FloatFormat(0, 4),
                                      FloatFormat(2, 2), FloatFormat(3, 2), FloatFormat(3, 3),
                                      kFloat8E4M3,       kFloat8E5M2};
  std::vector<NumberFormat> for_floats = floats;
  for_floats.insert(for_floats.end(), integers.begin(), integers.begin() + 4);
  integers.push_back(kFloat4E2M1);
  for (const auto& [x, weights] :
       {std::pair(kFloat8E4M3, for_floats), {kFloat8E5M2, floats}, {kInt8, integers}}) {
    std::vector<QuantSpec> specs = specs_for(x, weights);
    std::vector<GemmCase> cases = Cases({1, 9, 17, 33, 65, 129, 257, 300, 520}, {x});
    RunPacked(specs, {1, 200, 652}, cases);
    for (GemmCase& c : cases) c.x_scale_columns = 1;
    for (QuantSpec& spec : specs) spec.activation_scale = ActivationScaleKind::kDynamicToken;
    RunPacked(specs, {1, 130, 1000}, cases);
    if (x != kInt8) continue;
    for (QuantSpec& spec : specs) {
      if (spec.weight.kind == NumberKind::kInteger && spec.weight.bits < 8) {
        spec.zero_point = ZeroPointKind::kInteger;
        if (spec.scale_block_k == 32) spec.scale_block_k = 64;
      }
    }
    RunPacked(specs, {1, 64, 300}, cases);
  }
}

TEST_F(PackedGemmTest, SmallLayersWithGroupScaledActivations) {
  struct Formats {
    NumberFormat x;
    NumberFormat weight;
    int64_t block_n;
  };
  for (const auto& [x, weight, block_n] : {Formats{kFloat8E4M3, kFloat8E4M3, 128},
                                           {kFloat8E4M3, kFloat8E4M3, 1},
                                           {kFloat8E4M3, kFloat4E2M1, 1},
                                           {kInt8, IntegerFormat(8), 128},
                                           {kInt8, IntegerFormat(4), 1}}) {
    for (const int64_t group : {128, 256}) {
      QuantSpec spec = Spec(weight, kFloat32, block_n, group);
      spec.activation = x;
      spec.activation_scale = ActivationScaleKind::kDynamicGroup;
      spec.activation_group = group;
      for (const LayerShape& shape : {LayerShape{1, 200, 652}, {1, 576, 1152}}) {
        std::vector<GemmCase> cases = Cases({1, 9, 17, 33, 65, 129, 257, 300, 520}, {x});
        const size_t count = cases.size();
        for (size_t i = 0; i < count; ++i) {
          cases[i].x_scale_columns = (shape.k + group - 1) / group;
          cases.push_back(cases[i]);
          cases.back().x_scale_gap = 3 - (cases[i].x_scale_columns + 3) % 4;  // for a tensor map
        }
        RunPacked({spec}, shape, cases);
      }
    }
  }
}

TEST_F(PackedGemmTest, SmallUnquantizedLayers) {
  for (const NumberFormat& weight : {kBFloat16, kFloat16}) {
    for (const LayerShape& shape : {LayerShape{1, 200, 328}, {1, 65, 1152}}) {
      RunPacked({Spec(weight, kNoFormat, 1, 0)}, shape,
                Cases({1, 9, 17, 33, 65, 129, 257, 300, 520}, {weight}));
    }
  }
}

TEST_F(PackedGemmTest, SmallIntegerLayersAreExact) {
  std::vector<QuantSpec> wide, floats, int8;
  for (int bits = 1; bits <= 4; ++bits) {
    wide.push_back(Spec(IntegerFormat(bits), kBFloat16, 1, 64));
    floats.push_back(wide.back());
    floats.back().activation = kFloat8E4M3;
    int8.push_back(wide.back());
    int8.back().activation = kInt8;
  }
  const GemmCase base = {.integer_valued = true};
  const std::vector<int64_t> sizes = {1, 8, 16, 24, 40, 56, 72, 130, 264};
  RunPacked(wide, {1, 65, 250}, CasesOfM(sizes, base), {.integer_valued = true});
  GemmCase c = base;
  c.x_type = kFloat8E4M3;
  RunPacked(floats, {1, 65, 250}, CasesOfM(sizes, c), {.integer_valued = true});
  c.x_type = kInt8;
  RunPacked(int8, {1, 65, 250}, CasesOfM(sizes, c), {.integer_valued = true});
}

TEST_F(PackedGemmTest, LargeShapesOfTheSuite) {
  std::vector<QuantSpec> specs = {
      Spec(IntegerFormat(8), kBFloat16, 1, 0), Spec(kFloat4E2M1, kFloat8E8M0, 1, 32),
      Spec(kFloat4E2M1, kFloat8E4M3, 1, 16), Spec(IntegerFormat(3), kBFloat16, 1, 128)};
  RunPacked(specs, {1, 2112, 7168},
            CasesOfM({1, 16, 64, 300}, {.x_type = kBFloat16, .y_type = kBFloat16, .sampled = 24}));
  QuantSpec spec = Spec(kFloat8E4M3, kFloat32, 128, 128);
  spec.activation = kFloat8E4M3;
  spec.activation_scale = ActivationScaleKind::kDynamicGroup;
  spec.activation_group = 128;
  RunPacked(
      {spec}, {1, 2112, 7168},
      CasesOfM({1, 16, 64, 300},
               {.x_type = kFloat8E4M3, .y_type = kBFloat16, .x_scale_columns = 56, .x_scale_gap = 0, .sampled = 24}));
}

// Blocks that work on several tiles, and tiles that only fill up a cluster: 35 tiles of w by 5 of x.
TEST_F(PackedGemmTest, ManyTilesOfManyRows) {
  std::vector<QuantSpec> specs = {Spec(IntegerFormat(4), kBFloat16, 1, 128),
                                  Spec(kFloat4E2M1, kFloat8E4M3, 1, 16)};
  const GemmCase wide = {.x_type = kBFloat16, .y_type = kBFloat16, .y_gap = 8, .sampled = 48};
  RunPacked(specs, {1, 4440, 320}, CasesOfM({1100, 1537}, wide));
  QuantSpec blocks = Spec(kFloat8E4M3, kFloat32, 128, 128);
  blocks.activation = kFloat8E4M3;
  blocks.activation_scale = ActivationScaleKind::kDynamicGroup;
  blocks.activation_group = 128;
  const GemmCase scaled = {
      .x_type = kFloat8E4M3, .y_type = kFloat16, .x_scale_columns = 4, .x_scale_gap = 0, .sampled = 48};
  RunPacked({blocks}, {1, 4440, 512}, CasesOfM({1100, 1537}, scaled));
  QuantSpec folded = Spec(kFloat4E2M1, kFloat8E8M0, 1, 32);
  folded.activation = kFloat8E4M3;
  QuantSpec int8 = Spec(IntegerFormat(8), kBFloat16, 1, 0);
  int8.activation = kInt8;
  const GemmCase narrow = {.y_type = kFloat32, .x_scale_columns = 1, .sampled = 48};
  for (QuantSpec* spec : {&folded, &int8}) {
    spec->activation_scale = ActivationScaleKind::kDynamicToken;
    GemmCase c = narrow;
    c.x_type = spec->activation;
    RunPacked({*spec}, {1, 4440, 512}, CasesOfM({1100, 1537}, c));
  }
}

// Whole tiles are stored 16 bytes at once where y allows it, element by element elsewhere: rows of y that are
// aligned, but for the last 4 of N; and rows that are not.
TEST_F(PackedGemmTest, ManyTilesWithRowsOfYAtAnyAddress) {
  constexpr LayerShape kShape = {1, 4444, 512};
  QuantSpec rows = Spec(kFloat8E4M3, kBFloat16, 1, 0);
  rows.activation = kFloat8E4M3;
  rows.activation_scale = ActivationScaleKind::kDynamicToken;
  rows.bias = kFloat32;
  for (const NumberFormat& y_type : {kBFloat16, kFloat16, kFloat32}) {
    for (const int64_t y_gap : {0, 4, 3}) {
      GemmCase c = {.x_type = kBFloat16, .y_type = y_type, .y_gap = y_gap, .sampled = 48};
      RunPacked({Spec(IntegerFormat(4), kBFloat16, 1, 128)}, kShape, CasesOfM({1100}, c));
      c.x_type = kFloat8E4M3;
      c.x_scale_columns = 1;
      RunPacked({rows}, kShape, CasesOfM({1100}, c));
    }
  }
}

// The last tiles of w are followed by others of the same block where x has more tiles than are worked on side by
// side: what lies between N and the next row must stay as it was.
TEST_F(PackedGemmTest, ManyTilesOfXLeaveTheColumnsBehindN) {
  for (const int64_t n : {4444, 4440}) {
    GemmCase c = {.x_type = kBFloat16, .y_type = kBFloat16, .y_gap = n == 4444 ? 4 : 8, .sampled = 48};
    RunPacked({Spec(IntegerFormat(4), kBFloat16, 1, 128)}, {1, n, 512}, CasesOfM({4352}, c));
  }
}

TEST_F(PackedGemmTest, ServesSixteenBitFloatsAndLeavesTheRestToTheGenericKernel) {
  const StandardTensor tensor =
      RandomTensor(Spec(IntegerFormat(4), kBFloat16, 1, 128), {1, 256, 512}, random_);
  const auto layer = runner().Load(tensor);
  ASSERT_NE(layer, nullptr);
  for (const NumberFormat& type : {kBFloat16, kFloat16, kFloat32}) {
    for (const bool invariant : {false, true}) {
      const GemmRun run = RunGemmCase(
          runner(), tensor, layer, {.m = 4, .x_type = type, .batch_invariant = invariant}, random_);
      const bool packed = type.bits == 16 && !invariant;
      EXPECT_THAT(run.report.kernel, HasSubstr(packed ? "gemm_sm90" : "gemm_tf32"));
    }
  }
}

TEST_F(PackedGemmTest, GivesTheSameBitsAThousandTimes) {
  const StandardTensor tensor =
      RandomTensor(Spec(kFloat4E2M1, kFloat8E8M0, 1, 32), {1, 2112, 1152}, random_);
  const auto layer = runner().Load(tensor);
  ASSERT_NE(layer, nullptr);
  for (const int64_t m : {1, 40, 130, 600}) {
    const HostMatrix x = RandomMatrix(kBFloat16, m, 1152, random_);
    const HostMatrix first = Multiply(runner(), layer, x, kBFloat16);
    const int times = m == 1 ? 1000 : 50;
    for (int i = 0; i < times; ++i) {
      ASSERT_EQ(Multiply(runner(), layer, x, kBFloat16).bytes, first.bytes) << i;
    }
  }
}

}  // namespace
}  // namespace gemmd::testing
