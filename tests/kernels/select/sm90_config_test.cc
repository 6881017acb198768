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
  spec = Spec(kFloat16, 128);
  spec.weight = IntegerFormat(3);
  EXPECT_THAT(WhyNot(spec), HasSubstr("int3 weights"));
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
        EXPECT_GE(choice.config.tokens, std::min<int64_t>(choice.largest_m, 128));
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

TEST(Sm90ConfigTest, EveryChoiceOfASampleCompilesWithoutSpills) {
  const absl::StatusOr<const jit::NvrtcTable*> nvrtc = jit::LoadNvrtc();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().ToString();
  const bool all = std::getenv("GEMMD_TEST_FULL") != nullptr;
  std::vector<std::string> seen;
  const std::vector<NumberFormat> scales = {kBFloat16, kFloat16, kFloat32};
  size_t index = 0;
  for (const int64_t group : {128, 16, 64, 32, 0}) {
    for (const LayerShape& shape : Shapes()) {
      QuantSpec spec = Spec(scales[index % scales.size()], group);
      if (index % 2 == 1) spec.zero_point = ZeroPointKind::kInteger;
      const ElementType x_type = index % 4 < 2 ? ElementType::kBFloat16 : ElementType::kFloat16;
      for (const Sm90Choice& choice : ChooseSm90(spec, shape, x_type)) {
        const std::string name = KernelName(choice.config);
        if (std::find(seen.begin(), seen.end(), name) != seen.end()) continue;
        seen.push_back(name);
        if (!all && seen.size() % 20 != 1) continue;
        const absl::StatusOr<jit::CompiledKernel> kernel = jit::Compile(
            {RenderProgram(choice.config), KernelNameExpression(choice.config), "sm_90a"}, **nvrtc);
        ASSERT_TRUE(kernel.ok()) << name << ": " << kernel.status().ToString();
        EXPECT_EQ(kernel->log, "") << name;
        const testing::CubinResources used = testing::ResourcesOf(kernel->cubin);
        EXPECT_EQ(used.frame_bytes, 0) << name << " spills";
        std::printf("%-48s %4d registers\n", name.c_str(), used.registers);
      }
      ++index;
    }
  }
}

}  // namespace
}  // namespace gemmd
