#include "kernels/select/sm90_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "kernels/jit/compiler.h"
#include "tests/kernels/select/cubin_resources.h"
#include "tests/kernels/select/daily_sample.h"

namespace gemmd {
namespace {

QuantSpec ChoiceSpec(const NumberFormat& scale, int64_t group) {
  QuantSpec spec;
  spec.weight = IntegerFormat(4);
  spec.scale = scale;
  spec.scale_block_k = group;
  return spec;
}

QuantSpec ChoiceSpecWith(const NumberFormat& weight, const NumberFormat& activation) {
  QuantSpec spec = ChoiceSpec(kBFloat16, 128);
  spec.weight = weight;
  spec.activation = activation;
  return spec;
}

QuantSpec Unquantized(const NumberFormat& weight) {
  QuantSpec spec;
  spec.weight = weight;
  return spec;
}
QuantSpec BlockSpec(int64_t block_n) {
  QuantSpec spec = ChoiceSpecWith(kFloat8E4M3, kFloat8E4M3);
  spec.scale = kFloat32;
  spec.scale_block_n = block_n;
  spec.scale_block_k = 128;
  spec.activation_scale = ActivationScaleKind::kDynamicGroup;
  spec.activation_group = 128;
  return spec;
}

std::vector<LayerShape> ChoiceShapes() {
  return {{1, 1, 1},       {1, 64, 96},      {1, 130, 288},    {1, 576, 1152},  {1, 2112, 7168},
          {1, 6144, 4096}, {1, 28672, 4096}, {1, 4096, 14336}, {1, 8192, 8192}, {1, 7168, 2048}};
}

TEST(Sm90ChoiceTest, EveryChoiceFitsTheMultiprocessor) {
  for (const LayerShape& shape : ChoiceShapes()) {
    for (const int64_t group : {16, 32, 64, 128, 0}) {
      QuantSpec spec = ChoiceSpec(kFloat32, group);
      spec.zero_point = ZeroPointKind::kInteger;
      int64_t before = 0;
      for (const Sm90Choice& choice : ChooseSm90(spec, shape, ElementType::kFloat16)) {
        const Sm90Block block = choice.config.block();
        EXPECT_LE(block.shared_bytes(), Sm90Block::kLargestSharedBytes) << shape.n;
        EXPECT_LE(block.threads(), 640);
        EXPECT_GE(block.stages, 2);
        EXPECT_GE(choice.cluster, 1);
        EXPECT_LE(choice.cluster, 8);
        EXPECT_GE(choice.config.tokens, std::min<int64_t>(choice.largest_m, 32));
        EXPECT_EQ(choice.resident > 0,
                  choice.config.is_slabwise() && choice.cluster == choice.config.partners());
        EXPECT_EQ(choice.config.splits_k,
                  choice.config.is_slabwise() && choice.cluster > choice.config.partners());
        EXPECT_GT(choice.largest_m, before);
        before = choice.largest_m;
      }
    }
  }
}

TEST(Sm90ChoiceTest, SpreadsASquareLayerOverTheMultiprocessors) {
  for (const Sm90Choice& choice :
       ChooseSm90(ChoiceSpec(kBFloat16, 128), {1, 8192, 8192}, ElementType::kBFloat16)) {
    const int64_t row_tiles =
        (std::min<int64_t>(choice.largest_m, 4096) + choice.config.tokens - 1) /
        choice.config.tokens;
    const int64_t parts = choice.cluster / choice.config.partners();
    const int64_t blocks = 8192 / choice.config.block().rows() * parts * row_tiles;
    EXPECT_GE(blocks, 128) << choice.largest_m;
  }
}

// Formats with the types of x that have kernels for them.
std::vector<QuantSpec> SpecsToCompile() {
  std::vector<QuantSpec> specs;
  const std::vector<NumberFormat> scales = {kBFloat16, kFloat16, kFloat32, kFloat8E8M0,
                                            kFloat8E4M3};
  const std::vector<int64_t> groups = {128, 16, 64, 32, 0, 256};
  const auto add = [&](const NumberFormat& weight, const NumberFormat& activation) {
    const size_t i = specs.size();
    QuantSpec spec = ChoiceSpecWith(weight, activation);
    spec.scale = scales[i % scales.size()];
    spec.scale_block_k = groups[i % groups.size()];
    if (activation.present() && spec.scale_block_k == 16) spec.scale_block_k = 32;
    const bool may_have_zero_points =
        weight.kind == NumberKind::kInteger &&
        (!activation.present() || (activation == kInt8 && weight.bits < 8));
    if (may_have_zero_points && i % 2 == 1) {
      spec.zero_point = ZeroPointKind::kInteger;
      if (activation.present() && spec.scale_block_k == 32) spec.scale_block_k = 64;
    }
    if (activation.present() && i % 3 == 0) {
      spec.activation_scale = ActivationScaleKind::kDynamicGroup;
      spec.activation_group = 128;
    }
    specs.push_back(spec);
  };
  for (int bits = 1; bits <= 8; ++bits) {
    add(IntegerFormat(bits), kNoFormat);
    add(IntegerFormat(bits), kInt8);
    if (bits <= 4) add(IntegerFormat(bits), kFloat8E4M3);
  }
  for (const NumberFormat& weight :
       {kFloat4E2M1, FloatFormat(0, 3), FloatFormat(3, 2), FloatFormat(2, 3), FloatFormat(3, 3),
        kFloat8E4M3, kFloat8E5M2}) {
    add(weight, kNoFormat);
    add(weight, kFloat8E4M3);
  }
  specs.push_back(BlockSpec(128));
  add(kFloat4E2M1, kInt8);
  add(kFloat8E5M2, kFloat8E5M2);
  for (const int bits : {3, 4, 8}) {
    add(IntegerFormat(bits), kNoFormat);
    specs.back().zero_point = ZeroPointKind::kFloat;
  }
  for (const NumberFormat& weight : {FloatFormat(3, 4), FloatFormat(1, 6), FloatFormat(0, 7)}) {
    add(weight, kNoFormat);
  }
  for (const NumberFormat& weight : {kBFloat16, kFloat16}) specs.push_back(Unquantized(weight));
  return specs;
}

void ExpectCompilesWithoutSpills(const Sm90Config& config, const jit::NvrtcTable& nvrtc) {
  const std::string name = KernelName(config);
  const absl::StatusOr<jit::CompiledKernel> kernel =
      jit::Compile({RenderProgram(config), KernelNameExpression(config), "sm_90a"}, nvrtc);
  ASSERT_TRUE(kernel.ok()) << name << ": " << kernel.status().ToString();
  EXPECT_EQ(kernel->log, "") << name;
  const testing::CubinResources used = testing::ResourcesOf(kernel->cubin);
  // Slab kernels keep a few addresses there: their sums take most registers. So do integers with zero points
  // and scales of x, whose smaller tiles would cost more.
  const bool is_full = config.has_x_scales && config.zero_point == ZeroPointKind::kInteger;
  EXPECT_LE(used.frame_bytes, config.is_slabwise() ? 48 : is_full ? 16 : 0) << name << " spills";
  // The compiler's time goes with the code.
  EXPECT_LE(used.code_bytes, 60 << 10) << name << " takes long to compile";
  std::printf("%-48s %4d registers, %5d bytes of code\n", name.c_str(), used.registers,
              used.code_bytes);
}

constexpr size_t kSampledChoices = 97;  // one in as many: 2 seconds each

TEST(Sm90ChoiceTest, EveryChoiceCompilesWithoutSpills) {
  const absl::StatusOr<const jit::NvrtcTable*> nvrtc = jit::LoadNvrtc();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().ToString();
  const testing::DailySample sample;
  std::vector<std::string> seen;
  for (const QuantSpec& spec : SpecsToCompile()) {
    for (const LayerShape& shape : ChoiceShapes()) {
      if (!SupportsSm90(spec, shape, "sm_90a").ok()) continue;
      for (const ElementType x_type : Sm90XTypes(spec)) {
        for (const Sm90Choice& choice : ChooseSm90(spec, shape, x_type)) {
          const std::string name = KernelName(choice.config);
          if (std::find(seen.begin(), seen.end(), name) != seen.end()) continue;
          seen.push_back(name);
          if (!sample.Has(seen.size(), kSampledChoices)) continue;
          ExpectCompilesWithoutSpills(choice.config, **nvrtc);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
  EXPECT_GT(seen.size(), 400u);
}

const Sm90Config& ConfigFor(const std::vector<Sm90Choice>& choices, int64_t m) {
  size_t i = 0;
  while (i + 1 < choices.size() && m > choices[i].largest_m) ++i;
  return choices[i].config;
}

TEST(Sm90ChoiceTest, ManyRowsTakeTilesOf256AndStagesOfOneSlab) {
  const auto choices =
      ChooseSm90(ChoiceSpec(kBFloat16, 128), {1, 8192, 8192}, ElementType::kBFloat16);
  EXPECT_EQ(ConfigFor(choices, 4096).tokens, 256);
  EXPECT_TRUE(ConfigFor(choices, 4096).is_slabwise());
  EXPECT_FALSE(ConfigFor(choices, 32).is_slabwise());
}

// Measured (tests/bench/README.md): 12 to 18 percent of the time of block-scaled layers was lost by tiles of 128.
TEST(Sm90ChoiceTest, BlockScaledLayersTakeTilesOf256) {
  QuantSpec spec = BlockSpec(128);
  for (const LayerShape& shape : {LayerShape{1, 8192, 8192}, LayerShape{1, 4096, 7168}, LayerShape{1, 28672, 4096}}) {
    for (const int64_t m : {1024, 2048, 4096}) {
      EXPECT_EQ(ConfigFor(ChooseSm90(spec, shape, ElementType::kFloat8E4M3), m).tokens, 256) << shape.n << " " << m;
    }
  }
}

// Each wave of clusters would wait for its exchange: 20 to 40 percent were lost.
TEST(Sm90ChoiceTest, NoLayerOfSeveralWavesIsCutAlongK) {
  for (const QuantSpec& spec : {ChoiceSpec(kBFloat16, 128), BlockSpec(128), ChoiceSpecWith(kFloat4E2M1, kFloat8E4M3)}) {
    for (const LayerShape& shape : {LayerShape{1, 5120, 5120}, LayerShape{1, 18432, 7168}, LayerShape{1, 7168, 16384}}) {
      for (const Sm90Choice& choice : ChooseSm90(spec, shape, Sm90XTypes(spec).front())) {
        const int64_t w_tiles = shape.n / PackedLayout::kUnitRows / choice.config.row_groups;
        const int64_t tiles = w_tiles * (choice.largest_m / choice.config.tokens);
        if (choice.largest_m < 512 || tiles < 3 * 132) continue;
        EXPECT_EQ(choice.cluster, choice.config.partners()) << shape.n << " M = " << choice.largest_m;
      }
    }
  }
}

TEST(Sm90ChoiceTest, RoundsWeightsOnlyToTheTypeTheirScalesHave) {
  const LayerShape shape = {1, 8192, 8192};
  const auto rounds = [&](const NumberFormat& scale, ElementType x_type, int64_t m) {
    return ConfigFor(ChooseSm90(ChoiceSpec(scale, 128), shape, x_type), m).scale_on_weights;
  };
  EXPECT_TRUE(rounds(kBFloat16, ElementType::kBFloat16, 4096));
  EXPECT_TRUE(rounds(kFloat16, ElementType::kFloat16, 4096));
  EXPECT_FALSE(rounds(kFloat16, ElementType::kBFloat16, 4096)) << "two roundings";
  EXPECT_FALSE(rounds(kFloat32, ElementType::kBFloat16, 4096)) << "two roundings";
  EXPECT_FALSE(rounds(kBFloat16, ElementType::kBFloat16, 16)) << "few sums cost less";
}

// Each way a slab kernel treats scales.
std::vector<QuantSpec> SpecsOfSlabKernels() {
  QuantSpec sums_of_floats = ChoiceSpecWith(kFloat8E4M3, kFloat8E4M3);
  sums_of_floats.scale_block_k = 0;
  QuantSpec folded = ChoiceSpecWith(kFloat4E2M1, kFloat8E4M3);
  folded.scale = kFloat8E8M0;
  folded.scale_block_k = 32;
  QuantSpec zero_points = ChoiceSpec(kBFloat16, 128);
  zero_points.zero_point = ZeroPointKind::kInteger;
  return {BlockSpec(128),
          BlockSpec(64),
          sums_of_floats,
          folded,
          zero_points,
          Unquantized(kBFloat16),
          ChoiceSpecWith(IntegerFormat(8), kInt8),
          ChoiceSpecWith(IntegerFormat(4), kInt8)};
}

// The sample above may miss one.
TEST(Sm90ChoiceTest, EveryKindOfSlabKernelCompiles) {
  const absl::StatusOr<const jit::NvrtcTable*> nvrtc = jit::LoadNvrtc();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().ToString();
  const testing::DailySample sample;
  size_t index = 0;
  for (const QuantSpec& spec : SpecsOfSlabKernels()) {
    const auto choices = ChooseSm90(spec, {1, 8192, 8192}, Sm90XTypes(spec).front());
    Sm90Config config = ConfigFor(choices, 4096);
    EXPECT_TRUE(config.is_slabwise());
    ExpectCompilesWithoutSpills(config, **nvrtc);
    if (sample.Has(index, 2)) ExpectCompilesWithoutSpills(ConfigFor(choices, 128), **nvrtc);
    config.splits_k = !config.splits_k;
    if (sample.Has(index + 1, 2)) ExpectCompilesWithoutSpills(config, **nvrtc);
    ++index;
  }
}

TEST(Sm90ChoiceTest, Int8WithScalesOfBothSidesWithinASlabCompiles) {
  const absl::StatusOr<const jit::NvrtcTable*> nvrtc = jit::LoadNvrtc();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().ToString();
  QuantSpec spec = ChoiceSpecWith(IntegerFormat(8), kInt8);
  spec.scale_block_k = 64;
  spec.activation_scale = ActivationScaleKind::kDynamicGroup;
  spec.activation_group = 128;
  const auto choices = ChooseSm90(spec, {1, 8192, 8192}, ElementType::kInt8);
  for (const int64_t m : {64, 4096}) ExpectCompilesWithoutSpills(ConfigFor(choices, m), **nvrtc);
}

// What tests/gpu/half_sums_test.cc counts on.
TEST(Sm90ChoiceTest, ManyRowsOfFloat16MayHaveSumsOfFloat16) {
  QuantSpec int8 = ChoiceSpecWith(IntegerFormat(8), kNoFormat);
  int8.scale = kFloat16;
  int8.scale_block_k = 0;
  QuantSpec nvfp4 = ChoiceSpecWith(kFloat4E2M1, kNoFormat);
  nvfp4.scale = kFloat8E4M3;
  nvfp4.scale_block_k = 16;
  for (const QuantSpec& spec : {ChoiceSpec(kFloat16, 128), int8, nvfp4, Unquantized(kFloat16)}) {
    for (const int64_t m : {2047, 2049, 4097}) {
      const auto choices = ChooseSm90(spec, {1, 2120, 1152}, ElementType::kFloat16);
      EXPECT_TRUE(ConfigFor(choices, m).can_have_half_sums()) << NumberFormatName(spec.weight) << ", M " << m;
    }
  }
  const QuantSpec int4 = ChoiceSpec(kFloat16, 64);
  EXPECT_TRUE(ConfigFor(ChooseSm90(int4, {1, 2120, 520}, ElementType::kFloat16), 2049).can_have_half_sums());
  EXPECT_FALSE(ConfigFor(ChooseSm90(int4, {1, 2120, 520}, ElementType::kBFloat16), 2049).can_have_half_sums());
  EXPECT_FALSE(ConfigFor(ChooseSm90(int4, {1, 2120, 520}, ElementType::kFloat16), 1).can_have_half_sums());
}

TEST(Sm90ChoiceTest, SixteenBitWeightsWithScalesOfGroupsCompile) {
  const absl::StatusOr<const jit::NvrtcTable*> nvrtc = jit::LoadNvrtc();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().ToString();
  QuantSpec spec = ChoiceSpec(kFloat16, 64);
  spec.weight = kFloat16;
  const auto choices = ChooseSm90(spec, {1, 8192, 8192}, ElementType::kFloat16);
  for (const Sm90Choice& choice : choices) EXPECT_FALSE(choice.config.scale_on_weights);
  for (const int64_t m : {16, 4096}) ExpectCompilesWithoutSpills(ConfigFor(choices, m), **nvrtc);
}

TEST(Sm90ChoiceTest, ScalesGoWithThoseOfXOnlyWhereATileSharesThem) {
  const auto shares = [&](int64_t block_n, int64_t m) {
    return ConfigFor(ChooseSm90(BlockSpec(block_n), {1, 8192, 8192}, ElementType::kFloat8E4M3), m)
        .shares_scales;
  };
  EXPECT_TRUE(shares(128, 4096));
  EXPECT_FALSE(shares(64, 4096));
  EXPECT_FALSE(shares(1, 4096));
  EXPECT_FALSE(shares(128, 16)) << "stages of whole chunks";
}

}  // namespace
}  // namespace gemmd
