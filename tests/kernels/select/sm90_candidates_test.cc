#include "kernels/select/sm90_candidates.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/jit/compiler.h"
#include "kernels/layer_tuner.h"
#include "kernels/select/tuning_table.h"

namespace gemmd {
namespace {

QuantSpec Spec(const NumberFormat& weight, const NumberFormat& scale, int64_t group,
               const NumberFormat& activation = kNoFormat) {
  QuantSpec spec;
  spec.weight = weight;
  spec.scale = scale;
  spec.scale_block_k = group;
  spec.activation = activation;
  if (activation.present()) spec.activation_scale = ActivationScaleKind::kDynamicToken;
  return spec;
}

QuantSpec BlockSpec() {
  QuantSpec spec = Spec(kFloat8E4M3, kFloat32, 128, kFloat8E4M3);
  spec.scale_block_n = 128;
  spec.activation_scale = ActivationScaleKind::kDynamicGroup;
  spec.activation_group = 128;
  return spec;
}

std::vector<QuantSpec> Specs() {
  QuantSpec zeros = Spec(IntegerFormat(4), kBFloat16, 128);
  zeros.zero_point = ZeroPointKind::kInteger;
  return {Spec(IntegerFormat(4), kBFloat16, 128),
          Spec(IntegerFormat(4), kFloat16, 0),
          zeros,
          Spec(kFloat4E2M1, kFloat8E8M0, 32),
          Spec(kFloat4E2M1, kFloat8E8M0, 32, kFloat8E4M3),
          Spec(IntegerFormat(4), kBFloat16, 128, kInt8),
          Spec(IntegerFormat(8), kFloat32, 0, kInt8),
          Spec(kFloat8E4M3, kBFloat16, 0),
          Spec(IntegerFormat(3), kFloat32, 32),
          BlockSpec()};
}

std::vector<LayerShape> Shapes() {
  return {{1, 64, 96}, {1, 576, 1152}, {1, 2112, 7168}, {1, 28672, 4096}, {1, 8192, 8192}};
}

std::string Name(const Sm90Choice& choice) {
  std::string text = KernelName(choice.config);
  const Sm90Tiling tiling = TilingOf(choice);
  VisitTiling(tiling,
              [&](const char* name, int value) { absl::StrAppend(&text, " ", name, "=", value); });
  return text;
}

template <typename Check>
void ForEachProblem(Check check) {
  for (const QuantSpec& spec : Specs()) {
    for (const LayerShape& shape : Shapes()) {
      ASSERT_TRUE(SupportsSm90(spec, shape, "sm_90a").ok()) << SpecText(spec);
      for (const ElementType x_type : Sm90XTypes(spec)) {
        for (const int64_t m : {1, 7, 8, 9, 16, 17, 32, 33, 64, 128, 256, 1000, 4096, 5000}) {
          check(spec, shape, x_type, m);
        }
      }
    }
  }
}

TEST(Sm90CandidatesTest, TheFirstIsWhatTheModelTakes) {
  ForEachProblem([](const QuantSpec& spec, const LayerShape& shape, ElementType x_type, int64_t m) {
    Sm90Choice chosen;
    for (const Sm90Choice& choice : ChooseSm90(spec, shape, x_type)) {
      if (chosen.cluster == 0 && m <= choice.largest_m) chosen = choice;
    }
    const auto candidates = Sm90CandidatesAt(spec, shape, x_type, m);
    ASSERT_FALSE(candidates.empty());
    EXPECT_EQ(Name(candidates[0]), Name(chosen)) << SpecText(spec) << " M = " << m;
    EXPECT_EQ(RenderProgram(candidates[0].config), RenderProgram(chosen.config));
    EXPECT_EQ(candidates[0].largest_m, m);
  });
}

TEST(Sm90CandidatesTest, AllAreDistinctAndFitTheMultiprocessor) {
  ForEachProblem([](const QuantSpec& spec, const LayerShape& shape, ElementType x_type, int64_t m) {
    std::set<std::string> seen;
    for (const Sm90Choice& choice : Sm90CandidatesAt(spec, shape, x_type, m)) {
      EXPECT_TRUE(seen.insert(Name(choice)).second) << Name(choice);
      const Sm90Config& config = choice.config;
      EXPECT_EQ(config.x_type, x_type);
      EXPECT_EQ(config.weight, spec.weight);
      EXPECT_LE(config.block().shared_bytes(), Sm90Block::kLargestSharedBytes) << Name(choice);
      EXPECT_LE(config.block().threads(), 640);
      EXPECT_GE(config.stages, 2);
      EXPECT_EQ(choice.cluster % config.partners(), 0) << Name(choice);
      EXPECT_GE(choice.cluster, 1);
      EXPECT_LE(choice.cluster, 8);
      // Every block of a cluster has columns to work on.
      const int64_t columns = int64_t{config.stage_slabs} * config.column_groups *
                              config.unit().slab_columns();
      const int64_t parts = choice.cluster / config.partners();
      EXPECT_LE(parts, (shape.k + columns - 1) / columns) << Name(choice);
      EXPECT_EQ(config.splits_k, config.is_slabwise() && parts > 1) << Name(choice);
    }
  });
}

TEST(Sm90CandidatesTest, TilesOfXShareWeightsWhereThereAreSeveral) {
  ForEachProblem([](const QuantSpec& spec, const LayerShape& shape, ElementType x_type, int64_t m) {
    std::set<int> alone;  // tiles of x of that many rows
    std::set<int> shared;
    for (const Sm90Choice& choice : Sm90CandidatesAt(spec, shape, x_type, m)) {
      const Sm90Config& config = choice.config;
      if (config.weight_sharers == 1) {
        const bool could_share = config.is_slabwise() && choice.cluster == 1 && config.tokens >= 128;
        if (could_share && m > config.tokens) alone.insert(config.tokens);
        continue;
      }
      shared.insert(config.tokens);
      EXPECT_TRUE(config.is_slabwise()) << Name(choice);
      EXPECT_EQ(config.sharers, 1) << Name(choice);
      EXPECT_EQ(config.row_groups % config.weight_sharers, 0) << "each copies as much: " << Name(choice);
      EXPECT_GT(m, config.tokens) << Name(choice);
    }
    EXPECT_EQ(shared, alone) << SpecText(spec) << " M = " << m;
  });
}

// Their sums, partial sums and scales of x do not fit into the registers: int8 and e4m3 were seen to spill.
TEST(Sm90CandidatesTest, DecodedWeightsWithScalesOfXHaveNoTilesOf256) {
  for (const NumberFormat& activation : {kFloat8E4M3, kFloat8E5M2, kInt8}) {
    for (const int bits : {2, 3, 4}) {
      QuantSpec spec = Spec(IntegerFormat(bits), kFloat32, 256, activation);
      spec.activation_scale = ActivationScaleKind::kDynamicGroup;
      spec.activation_group = 128;
      for (const int64_t n : {512, 8192}) {
        for (const int64_t m : {256, 4096}) {
          for (const Sm90Choice& choice :
               Sm90CandidatesAt(spec, {1, n, 8192}, Sm90XTypes(spec).front(), m)) {
            EXPECT_LT(choice.config.tokens, 256) << KernelName(choice.config);
          }
        }
      }
    }
  }
}

TEST(Sm90CandidatesTest, TheyComeInTheOrderOfTheModelsCycles) {
  for (const int64_t m : {8, 32, 64, 512}) {
    const auto candidates = Sm90CandidatesAt(Specs()[0], {1, 8192, 8192}, ElementType::kBFloat16, m);
    ASSERT_GT(candidates.size(), 6u);
    EXPECT_GT(candidates[0].model_cycles, 0);
    for (size_t i = 2; i < candidates.size(); ++i) {
      EXPECT_GE(candidates[i].model_cycles, candidates[i - 1].model_cycles) << "M = " << m;
    }
  }
}

TEST(Sm90CandidatesTest, ATilingFindsItsCandidateAndNoOther) {
  const QuantSpec spec = Specs()[0];
  const LayerShape shape = {1, 2112, 7168};
  for (const int64_t m : {8, 64, 1024}) {
    for (const Sm90Choice& choice : Sm90CandidatesAt(spec, shape, ElementType::kBFloat16, m)) {
      const auto found =
          FindSm90Candidate(spec, shape, ElementType::kBFloat16, m, TilingOf(choice));
      ASSERT_TRUE(found.has_value());
      EXPECT_EQ(RenderProgram(found->config), RenderProgram(choice.config));
      Sm90Tiling other = TilingOf(choice);
      other.stages += 100;
      EXPECT_FALSE(FindSm90Candidate(spec, shape, ElementType::kBFloat16, m, other).has_value());
    }
  }
}

// What tuning measures by default, of one format; of all with GEMMD_TEST_FULL=1.
TEST(Sm90CandidatesTest, TheBestOnesCompile) {
  const absl::StatusOr<const jit::NvrtcTable*> nvrtc = jit::LoadNvrtc();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().ToString();
  const bool all = std::getenv("GEMMD_TEST_FULL") != nullptr;
  std::set<std::string> seen;
  for (const QuantSpec& spec : Specs()) {
    if (!all && !seen.empty()) break;
    const ElementType x_type = Sm90XTypes(spec).front();
    for (const int64_t m : {8, 64}) {
      auto candidates = Sm90CandidatesAt(spec, {1, 8192, 8192}, x_type, m);
      if (candidates.size() > 6) candidates.resize(6);
      for (const Sm90Choice& choice : candidates) {
        if (!seen.insert(RenderProgram(choice.config)).second) continue;
        const auto kernel = jit::Compile({RenderProgram(choice.config),
                                          KernelNameExpression(choice.config), "sm_90a"},
                                         **nvrtc);
        EXPECT_TRUE(kernel.ok()) << Name(choice) << ": " << kernel.status();
      }
    }
  }
}

TEST(Sm90CandidatesTest, TheEmptyKernelTheyAreComparedWithCompiles) {
  const absl::StatusOr<const jit::NvrtcTable*> nvrtc = jit::LoadNvrtc();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().ToString();
  const auto kernel = jit::Compile(EmptyKernel("sm_90a"), **nvrtc);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ(kernel->log, "");
  EXPECT_NE(kernel->lowered_name, "");
}

TEST(Sm90CandidatesTest, MoreRowsThanAGridCountsHaveNone) {
  EXPECT_TRUE(
      Sm90CandidatesAt(Specs()[0], {1, 64, 96}, ElementType::kBFloat16, int64_t{1} << 40).empty());
}

}  // namespace
}  // namespace gemmd
