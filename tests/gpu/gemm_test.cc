// Dense GEMMs on a GPU against the double-precision reference. `*Small*` is the part for
// compute-sanitizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/base/status.h"
#include "kernels/select/sm90_choice.h"
#include "tests/gpu/gpu_fixture.h"

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

class GemmTest : public GpuTest {
 protected:
  // Kernels for many rows round weight times scale to x's type: half of its last bit each.
  void AllowRounding(const QuantSpec& spec, const LayerShape& shape, GemmCase& c) {
    if (RoundsWeights(spec, shape, c)) c.sum_bits = c.x_type == kBFloat16 ? 8 : 11;
  }
  bool RoundsWeights(const QuantSpec& spec, const LayerShape& shape, const GemmCase& c) {
    if (c.x_type.bits != 16 || c.batch_invariant) return false;
    if (!SupportsSm90(spec, shape, device().description().architecture).ok()) return false;
    const auto x_type = c.x_type == kBFloat16 ? ElementType::kBFloat16 : ElementType::kFloat16;
    for (const Sm90Choice& choice : ChooseSm90(spec, shape, x_type)) {
      if (c.m > choice.largest_m) continue;
      return choice.config.scale_on_weights && !choice.config.scale_is_relative;
    }
    return false;
  }

  // Loads a random layer of every spec and runs every case on each.
  void RunAll(const std::vector<QuantSpec>& specs, const LayerShape& shape,
              const std::vector<GemmCase>& cases, const LayerOptions& options = {}) {
    std::vector<StandardTensor> tensors;
    for (const QuantSpec& spec : specs)
      tensors.push_back(RandomTensor(spec, shape, random_, options));
    const auto layers = LoadAll(tensors);
    for (size_t i = 0; i < layers.size(); ++i) {
      ASSERT_NE(layers[i], nullptr) << "spec " << i;
      for (GemmCase c : cases) {
        AllowRounding(specs[i], shape, c);
        const GemmRun run = RunGemmCase(runner(), tensors[i], layers[i], c, random_);
        ASSERT_FALSE(HasFailure()) << run.report.kernel << ", spec " << i << ", M " << c.m << ", N "
                                   << shape.n << ", K " << shape.k;
      }
    }
  }
};

std::vector<GemmCase> CasesOfM(const std::vector<int64_t>& sizes, GemmCase base = {}) {
  std::vector<GemmCase> cases;
  for (const int64_t m : sizes) {
    cases.push_back(base);
    cases.back().m = m;
  }
  return cases;
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

HostMatrix Multiply(DeviceRunner& runner, const std::shared_ptr<DeviceLayer>& layer,
                    const HostMatrix& x, const NumberFormat& y_type, bool batch_invariant = false) {
  HostMatrix y = PoisonedMatrix(y_type, x.rows, layer->shape().n);
  const DeviceMatrix device_x = runner.Upload(x);
  const DeviceMatrix device_y = runner.Upload(y);
  GemmCall call;
  call.layer = layer;
  call.x = device_x.view;
  call.y = device_y.view;
  call.batch_invariant = batch_invariant;
  const absl::StatusOr<CallReport> report = runner.device().RunGemm(runner.stream(), call);
  EXPECT_TRUE(report.ok()) << report.status().ToString();
  runner.Download(device_y, y);
  return y;
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
  const HostMatrix alone = Multiply(runner(), layer, x, kFloat32, true);
  EXPECT_EQ(Multiply(runner(), layer, x, kFloat32, true).bytes, alone.bytes);
  for (const auto& [rows, row] :
       std::vector<std::pair<int64_t, int64_t>>{{2, 1}, {17, 9}, {64, 63}, {200, 130}}) {
    const HostMatrix y =
        Multiply(runner(), layer, WithRowAt(x, rows, row, random_), kFloat32, true);
    for (int64_t n = 0; n < 100; ++n)
      ASSERT_EQ(y.bits_at(row, n), alone.bits_at(0, n)) << rows << ", " << n;
  }
}

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
  for (const auto& [x, weight] : {std::pair(kFloat8E4M3, kFloat8E4M3),
                                  {kFloat8E4M3, kFloat4E2M1},
                                  {kInt8, IntegerFormat(8)},
                                  {kInt8, IntegerFormat(4)}}) {
    for (const int64_t group : {128, 256}) {
      QuantSpec spec = Spec(weight, kFloat32, weight.bits == 8 ? 128 : 1, group);
      spec.activation = x;
      spec.activation_scale = ActivationScaleKind::kDynamicGroup;
      spec.activation_group = group;
      for (const LayerShape& shape : {LayerShape{1, 200, 652}, {1, 576, 1152}}) {
        std::vector<GemmCase> cases = Cases({1, 9, 17, 33, 65, 129, 257, 300, 520}, {x});
        for (GemmCase& c : cases) c.x_scale_columns = (shape.k + group - 1) / group;
        RunPacked({spec}, shape, cases);
      }
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
               {.x_type = kFloat8E4M3, .y_type = kBFloat16, .x_scale_columns = 56, .sampled = 24}));
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
      .x_type = kFloat8E4M3, .y_type = kFloat16, .x_scale_columns = 4, .sampled = 48};
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
struct SquaredErrors {
  double ours = 0;
  double dequantized = 0;
};
SquaredErrors CompareWithDequantized(const StandardTensor& tensor, const HostMatrix& x,
                                     const HostMatrix& y) {
  SquaredErrors errors;
  for (int64_t n = 0; n < tensor.shape.n; ++n) {
    const std::vector<double> weights = WeightRow(tensor, 0, n);
    for (int64_t m = 0; m < x.rows; ++m) {
      const std::vector<double> activations = MatrixRow(x, m);
      const double exact = ExactDot(activations, weights).value;
      float sum = 0;
      for (size_t k = 0; k < weights.size(); ++k) {
        const double rounded = DecodeNumber(x.type, EncodeNumber(x.type, weights[k]));
        sum += static_cast<float>(activations[k]) * static_cast<float>(rounded);
      }
      errors.ours += (y.at(m, n) - exact) * (y.at(m, n) - exact);
      errors.dequantized += (sum - exact) * (sum - exact);
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
        EXPECT_LE(errors.ours, errors.dequantized * (m == 16 ? 1 : 1.001))
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
