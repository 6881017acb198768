#include "kernels/select/sm90_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "kernels/base/status.h"
#include "kernels/jit/compiler.h"
#include "tests/kernels/select/cubin_resources.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;

QuantSpec Spec(const NumberFormat& scale, int64_t group) {
  QuantSpec spec;
  spec.weight = IntegerFormat(4);
  spec.scale = scale;
  spec.scale_block_k = group;
  return spec;
}

std::string WhyNot(const QuantSpec& spec, const LayerShape& shape = {1, 64, 256},
                   const std::string& architecture = "sm_90a") {
  const absl::Status status = SupportsSm90(spec, shape, architecture);
  EXPECT_EQ(status.ok() ? "NO_KERNEL" : ReasonOf(status), "NO_KERNEL");
  return std::string(status.message());
}

TEST(Sm90ConfigTest, SaysWhatTheKernelDoesNotTake) {
  EXPECT_EQ(WhyNot(Spec(kFloat16, 128)), "");
  EXPECT_EQ(WhyNot(Spec(kFloat16, 48)), "");
  EXPECT_EQ(WhyNot(Spec(kFloat16, 0)), "");
  EXPECT_THAT(WhyNot(Spec(kFloat16, 20)), HasSubstr("groups of 20 columns"));
  EXPECT_EQ(WhyNot(Spec(kFloat16, 300)), "") << "one group over all of K";
  EXPECT_THAT(WhyNot(Spec(kFloat16, 128), {1, 64, 256}, "sm_90"), HasSubstr("sm_90"));
  EXPECT_THAT(WhyNot(Spec(kFloat16, 128), {1, 64, 256}, "sm_100a"), HasSubstr("sm_100a"));
  EXPECT_THAT(WhyNot(Spec(kFloat16, 128), {8, 64, 256}), HasSubstr("8 experts"));
  QuantSpec spec = Spec(kFloat16, 128);
  spec.has_group_index = true;
  EXPECT_THAT(WhyNot(spec), HasSubstr("group index"));
  spec = Spec(kFloat16, 128);
  spec.zero_point = ZeroPointKind::kFloat;
  EXPECT_THAT(WhyNot(spec), HasSubstr("floating-point zero points"));
  spec = Spec(kNoFormat, 0);
  spec.weight = kFloat16;
  EXPECT_THAT(WhyNot(spec), HasSubstr("f16 weights"));
}

QuantSpec SpecWith(const NumberFormat& weight, const NumberFormat& activation) {
  QuantSpec spec = Spec(kBFloat16, 128);
  spec.weight = weight;
  spec.activation = activation;
  return spec;
}

TEST(Sm90ConfigTest, SaysWhatEightBitActivationsDoNotTake) {
  const LayerShape shape = {1, 64, 512};
  for (int bits = 1; bits <= 8; ++bits) {
    EXPECT_EQ(WhyNot(SpecWith(IntegerFormat(bits), kInt8), shape), "") << bits;
    EXPECT_EQ(WhyNot(SpecWith(IntegerFormat(bits), kFloat8E4M3), shape).empty(), bits <= 4) << bits;
  }
  EXPECT_EQ(WhyNot(SpecWith(kFloat4E2M1, kInt8), shape), "");
  EXPECT_EQ(WhyNot(SpecWith(kFloat8E5M2, kFloat8E4M3), shape), "");
  EXPECT_THAT(WhyNot(SpecWith(FloatFormat(3, 2), kInt8), shape), HasSubstr("int8 activations"));
  EXPECT_THAT(WhyNot(SpecWith(FloatFormat(3, 4), kFloat8E4M3), shape), HasSubstr("e3m4 weights"));
  // Its largest code is e4m3's NaN.
  EXPECT_NE(WhyNot(SpecWith(FloatFormat(4, 3), kFloat8E4M3), shape), "");
  QuantSpec spec = SpecWith(IntegerFormat(4), kFloat8E4M3);
  spec.zero_point = ZeroPointKind::kInteger;
  EXPECT_THAT(WhyNot(spec, shape), HasSubstr("with zero points"));
  spec = SpecWith(IntegerFormat(4), kInt8);
  spec.scale_block_k = 16;
  EXPECT_THAT(WhyNot(spec, shape), HasSubstr("groups of 16 columns"));
  spec.scale_block_k = 32;
  EXPECT_EQ(WhyNot(spec, shape), "");
  spec.zero_point = ZeroPointKind::kInteger;
  EXPECT_THAT(WhyNot(spec, shape), HasSubstr("zero points of 32 columns"));
  spec = SpecWith(kFloat8E4M3, kFloat8E4M3);
  spec.activation_scale = ActivationScaleKind::kDynamicGroup;
  spec.activation_group = 64;
  EXPECT_THAT(WhyNot(spec, shape), HasSubstr("activation groups of 64 columns"));
  spec.activation_group = 256;
  EXPECT_EQ(WhyNot(spec, shape), "");
  EXPECT_TRUE(Sm90TakesXScales(spec, shape));
  EXPECT_FALSE(Sm90TakesXScales(spec, {1, 64, 256})) << "one group over all of K";
  spec = SpecWith(IntegerFormat(8), kInt8);
  spec.scale_block_k = 0;
  EXPECT_THAT(WhyNot(spec, {1, 64, (1 << 17) + 128}), HasSubstr("int8 sums over 131200 columns"));
}

TEST(Sm90ConfigTest, ScalesWeightsOnlyWhereThatIsExact) {
  const auto scales_weights = [](const NumberFormat& weight, const NumberFormat& scale,
                                 ElementType x_type) {
    QuantSpec spec = Spec(scale, 32);
    spec.weight = weight;
    return ChooseSm90(spec, {1, 256, 512}, x_type).front().config.scale_on_weights;
  };
  EXPECT_TRUE(scales_weights(kFloat4E2M1, kFloat8E8M0, ElementType::kBFloat16));
  EXPECT_TRUE(scales_weights(kFloat4E2M1, kFloat8E4M3, ElementType::kBFloat16));
  EXPECT_TRUE(scales_weights(kFloat4E2M1, kFloat8E4M3, ElementType::kFloat16));
  EXPECT_FALSE(scales_weights(kFloat4E2M1, kFloat8E8M0, ElementType::kFloat16)) << "range";
  EXPECT_FALSE(scales_weights(kFloat4E2M1, kBFloat16, ElementType::kBFloat16)) << "mantissa";
  EXPECT_FALSE(scales_weights(kFloat8E4M3, kFloat8E8M0, ElementType::kBFloat16)) << "2^-136";
  EXPECT_TRUE(scales_weights(kFloat8E4M3, kFloat8E4M3, ElementType::kBFloat16));
  EXPECT_FALSE(scales_weights(kFloat8E4M3, kFloat8E4M3, ElementType::kFloat16)) << "448 * 448";
  EXPECT_FALSE(scales_weights(IntegerFormat(4), kFloat8E4M3, ElementType::kBFloat16));
}

std::vector<LayerShape> Shapes() {
  return {{1, 1, 1},       {1, 64, 96},      {1, 130, 288},    {1, 576, 1152},  {1, 2112, 7168},
          {1, 6144, 4096}, {1, 28672, 4096}, {1, 4096, 14336}, {1, 8192, 8192}, {1, 7168, 2048}};
}

TEST(Sm90ConfigTest, EveryChoiceFitsTheMultiprocessor) {
  for (const LayerShape& shape : Shapes()) {
    for (const int64_t group : {16, 32, 64, 128, 0}) {
      QuantSpec spec = Spec(kFloat32, group);
      spec.zero_point = ZeroPointKind::kInteger;
      int64_t before = 0;
      for (const Sm90Choice& choice : ChooseSm90(spec, shape, ElementType::kFloat16)) {
        const Sm90Block block = choice.config.block();
        EXPECT_LE(block.shared_bytes(), Sm90Block::kLargestSharedBytes) << shape.n;
        EXPECT_LE(block.threads(), 640);
        EXPECT_GE(block.stages, 2);
        EXPECT_GE(choice.cluster, 1);
        EXPECT_LE(choice.cluster, 8);
        EXPECT_GE(choice.config.tokens, std::min<int64_t>(choice.largest_m, 64));
        EXPECT_GT(choice.largest_m, before);
        before = choice.largest_m;
      }
    }
  }
}

TEST(Sm90ConfigTest, SpreadsASquareLayerOverTheMultiprocessors) {
  for (const Sm90Choice& choice :
       ChooseSm90(Spec(kBFloat16, 128), {1, 8192, 8192}, ElementType::kBFloat16)) {
    const int64_t row_tiles =
        choice.largest_m <= 128 ? 1 : std::min<int64_t>(choice.largest_m, 512) / 128;
    const int64_t blocks = 8192 / choice.config.block().rows() * choice.cluster * row_tiles;
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
    QuantSpec spec = SpecWith(weight, activation);
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
  add(kFloat4E2M1, kInt8);
  add(kFloat8E5M2, kFloat8E5M2);
  for (const NumberFormat& weight : {FloatFormat(3, 4), FloatFormat(1, 6), FloatFormat(0, 7)}) {
    add(weight, kNoFormat);
  }
  return specs;
}

void ExpectCompilesWithoutSpills(const Sm90Config& config, const jit::NvrtcTable& nvrtc) {
  const std::string name = KernelName(config);
  const absl::StatusOr<jit::CompiledKernel> kernel =
      jit::Compile({RenderProgram(config), KernelNameExpression(config), "sm_90a"}, nvrtc);
  ASSERT_TRUE(kernel.ok()) << name << ": " << kernel.status().ToString();
  EXPECT_EQ(kernel->log, "") << name;
  const testing::CubinResources used = testing::ResourcesOf(kernel->cubin);
  EXPECT_EQ(used.frame_bytes, 0) << name << " spills";
  std::printf("%-48s %4d registers\n", name.c_str(), used.registers);
}

// A sample; all with GEMMD_TEST_FULL=1.
TEST(Sm90ConfigTest, EveryChoiceCompilesWithoutSpills) {
  const absl::StatusOr<const jit::NvrtcTable*> nvrtc = jit::LoadNvrtc();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().ToString();
  const bool all = std::getenv("GEMMD_TEST_FULL") != nullptr;
  std::vector<std::string> seen;
  size_t index = 0;
  for (const QuantSpec& spec : SpecsToCompile()) {
    for (const LayerShape& shape : Shapes()) {
      if (!SupportsSm90(spec, shape, "sm_90a").ok()) continue;
      for (const ElementType x_type : Sm90XTypes(spec)) {
        for (const Sm90Choice& choice : ChooseSm90(spec, shape, x_type)) {
          const std::string name = KernelName(choice.config);
          if (std::find(seen.begin(), seen.end(), name) != seen.end()) continue;
          seen.push_back(name);
          if (!all && index++ % 29 != 0) continue;
          ExpectCompilesWithoutSpills(choice.config, **nvrtc);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
  EXPECT_GT(seen.size(), 400u);
}

}  // namespace
}  // namespace gemmd
