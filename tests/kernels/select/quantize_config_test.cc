#include "kernels/select/quantize_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "kernels/base/status.h"
#include "kernels/jit/compiler.h"
#include "tests/kernels/select/cubin_resources.h"
#include "tests/kernels/select/daily_sample.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;

QuantSpec Asking(const NumberFormat& activation, ActivationScaleKind kind, int64_t group = 0) {
  QuantSpec spec;
  spec.weight = kFloat8E4M3;
  spec.scale = kFloat32;
  spec.activation = activation;
  spec.activation_scale = kind;
  spec.activation_group = group;
  return spec;
}

std::string WhyNot(const QuantizeProblem& problem) {
  const absl::Status status = ChooseQuantize(problem).status();
  EXPECT_EQ(ReasonOf(status), "NO_KERNEL") << status;
  return std::string(status.message());
}

TEST(QuantizeConfigTest, RendersEveryField) {
  const QuantizeConfig config{.x_type = ElementType::kFloat16,
                              .code_type = ElementType::kInt8,
                              .mode = QuantizeMode::kDynamicGroup,
                              .activation = InputActivation::kSiluAndMul,
                              .input_scale = true,
                              .hadamard_block = 64,
                              .unit = 128,
                              .threads = 512};
  EXPECT_EQ(RenderProgram(config),
            "#include \"kernels/device/quantize_x.cuh\"\n"
            "namespace gemmd::device {\nstruct Config {\n"
            "  static constexpr ElementType kXType = ElementType::kFloat16;\n"
            "  static constexpr ElementType kCodeType = ElementType::kInt8;\n"
            "  static constexpr QuantizeMode kMode = QuantizeMode::kDynamicGroup;\n"
            "  static constexpr InputActivation kActivation = InputActivation::kSiluAndMul;\n"
            "  static constexpr bool kInputScale = true;\n"
            "  static constexpr int kHadamardBlock = 64;\n"
            "  static constexpr int kUnit = 128;\n"
            "  static constexpr int kThreads = 512;\n"
            "};\n}  // namespace gemmd::device\n");
  EXPECT_EQ(KernelName(config), "quantize_f16_int8_silu_scaled_h64_group128_512");
}

TEST(QuantizeConfigTest, ProblemIsWhatTheSpecAsksFor) {
  const auto problem = [](const QuantSpec& spec) {
    return QuantizeProblemOf(spec, 512, ElementType::kBFloat16);
  };
  const auto token = problem(Asking(kInt8, ActivationScaleKind::kDynamicToken));
  ASSERT_TRUE(token.ok()) << token.status();
  EXPECT_EQ(token->mode, QuantizeMode::kDynamicToken);
  EXPECT_EQ(token->code_type, ElementType::kInt8);
  const auto group = problem(Asking(kFloat8E4M3, ActivationScaleKind::kDynamicGroup, 128));
  ASSERT_TRUE(group.ok());
  EXPECT_EQ(group->mode, QuantizeMode::kDynamicGroup);
  EXPECT_EQ(group->group, 128);
  const auto whole = problem(Asking(kFloat8E5M2, ActivationScaleKind::kDynamicGroup, 512));
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->mode, QuantizeMode::kDynamicToken) << "one group is the row";
  EXPECT_EQ(problem(Asking(kFloat8E4M3, ActivationScaleKind::kStaticTensor))->mode,
            QuantizeMode::kStaticTensor);
}

TEST(QuantizeConfigTest, NothingIsQuantizedThatTheSpecDoesNotAskFor) {
  for (const QuantSpec& spec : {Asking(kNoFormat, ActivationScaleKind::kNone),
                                Asking(kFloat4E2M1, ActivationScaleKind::kDynamicToken),
                                Asking(kInt8, ActivationScaleKind::kNone)}) {
    EXPECT_EQ(ReasonOf(QuantizeProblemOf(spec, 512, ElementType::kFloat16).status()), "NO_KERNEL");
  }
  EXPECT_EQ(ReasonOf(QuantizeProblemOf(Asking(kInt8, ActivationScaleKind::kDynamicToken), 512,
                                       ElementType::kInt8)
                         .status()),
            "NO_KERNEL");
}

TEST(QuantizeConfigTest, RowsStayInRegistersUpTo32768Columns) {
  for (const ElementType x_type : {ElementType::kBFloat16, ElementType::kFloat32}) {
    for (const auto& [k, threads] : std::vector<std::pair<int64_t, int>>{
             {1, 64}, {2048, 64}, {2049, 128}, {8192, 256}, {32768, 1024}, {131072, 1024}}) {
      const auto choice = ChooseQuantize({.x_type = x_type, .k = k});
      ASSERT_TRUE(choice.ok()) << k;
      EXPECT_EQ(choice->config.threads, threads) << k;
      EXPECT_EQ(choice->slice_columns, k);
      EXPECT_EQ(choice->shared_bytes, threads / 32 * 4);
    }
  }
}

TEST(QuantizeConfigTest, SlicesOfRowsCutNoGroupAndNoHadamardBlock) {
  for (const int64_t group : {8, 16, 48, 128, 384, 1024, 6144, 40000}) {
    for (const int block : {0, 64, 1024}) {
      for (const int64_t k : {int64_t{65536}, int64_t{1} << 24}) {
        const auto choice = ChooseQuantize(
            {.mode = QuantizeMode::kDynamicGroup, .k = k, .group = group, .hadamard_block = block});
        if (!choice.ok()) {
          EXPECT_TRUE(group % block != 0 && block % group != 0) << choice.status();
          continue;
        }
        EXPECT_EQ(choice->slice_columns % group, 0) << group;
        EXPECT_EQ(group % choice->config.unit, 0) << group;
        EXPECT_LE((k + choice->slice_columns - 1) / choice->slice_columns, 65535);
        if (block > 0) {
          EXPECT_EQ(choice->slice_columns % block, 0) << group;
        }
      }
    }
  }
}

TEST(QuantizeConfigTest, XThatIsOnlyMultipliedKeepsItsTypeAndComesInShortSlices) {
  const auto wide = ChooseQuantize(ScaleProblemOf(8192, ElementType::kBFloat16));
  ASSERT_TRUE(wide.ok()) << wide.status();
  EXPECT_EQ(KernelName(wide->config), "quantize_bf16_bf16_scaled_64");
  EXPECT_EQ(wide->slice_columns, 2048);
  EXPECT_EQ(wide->shared_bytes, 0);
  const auto narrow = ChooseQuantize(ScaleProblemOf(100, ElementType::kInt8));
  ASSERT_TRUE(narrow.ok()) << narrow.status();
  EXPECT_EQ(KernelName(narrow->config), "quantize_int8_f32_scaled_64");
  EXPECT_EQ(narrow->slice_columns, 100);
  const auto longest = ChooseQuantize(ScaleProblemOf(int64_t{1} << 30, ElementType::kFloat32));
  ASSERT_TRUE(longest.ok()) << longest.status();
  EXPECT_LE(((int64_t{1} << 30) + longest->slice_columns - 1) / longest->slice_columns, 65535);
  EXPECT_EQ(longest->slice_columns % 2048, 0);
}

TEST(QuantizeConfigTest, RefusesWhatTheKernelCannotDo) {
  EXPECT_THAT(WhyNot({.k = 0}), HasSubstr("K = 0"));
  EXPECT_THAT(WhyNot({.k = (int64_t{1} << 30) + 1}), HasSubstr("K = "));
  EXPECT_THAT(WhyNot({.mode = QuantizeMode::kDynamicGroup, .k = 500, .group = 100}),
              HasSubstr("groups of 100 columns are no multiple of 8"));
  EXPECT_THAT(WhyNot({.k = 4096, .hadamard_block = 2048}), HasSubstr("2048"));
  EXPECT_THAT(WhyNot({.k = 4096, .hadamard_block = 48}), HasSubstr("48"));
  EXPECT_THAT(WhyNot({.k = 4000, .hadamard_block = 128}), HasSubstr("no multiple"));
  EXPECT_THAT(
      WhyNot({.mode = QuantizeMode::kDynamicGroup, .k = 4096, .group = 384, .hadamard_block = 256}),
      HasSubstr("do not fit"));
  EXPECT_THAT(WhyNot({.mode = QuantizeMode::kDynamicGroup, .k = 1 << 24, .group = 1 << 23}),
              HasSubstr("shared memory"));
}

// ---- with the compiler ----

class QuantizeCompileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<const jit::NvrtcTable*> nvrtc = jit::LoadNvrtc();
    if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().ToString();
    nvrtc_ = *nvrtc;
  }

  void ExpectCompiles(const QuantizeProblem& problem, const std::string& architecture) {
    const auto choice = ChooseQuantize(problem);
    ASSERT_TRUE(choice.ok()) << choice.status();
    const QuantizeConfig& config = choice->config;
    const absl::StatusOr<jit::CompiledKernel> kernel =
        jit::Compile({RenderProgram(config), KernelNameExpression(config), architecture}, *nvrtc_);
    ASSERT_TRUE(kernel.ok()) << KernelName(config) << ": " << kernel.status().ToString();
    EXPECT_EQ(kernel->log, "") << KernelName(config);
    const testing::CubinResources used = testing::ResourcesOf(kernel->cubin);
    std::printf("%-8s %-48s %4d registers, %d bytes of stack\n", architecture.c_str(),
                KernelName(config).c_str(), used.registers, used.frame_bytes);
    EXPECT_LE(used.registers * config.threads, 64 << 10) << KernelName(config);
    EXPECT_EQ(used.frame_bytes, 0) << KernelName(config) << " spills";
  }

  const jit::NvrtcTable* nvrtc_ = nullptr;
  const testing::DailySample sample_;
};

TEST_F(QuantizeCompileTest, KernelsOfEveryTypeAndModeCompileWithoutSpills) {
  const ElementType kTypes[] = {ElementType::kBFloat16, ElementType::kFloat16,
                                ElementType::kFloat32};
  const ElementType kCodes[] = {ElementType::kFloat8E4M3, ElementType::kFloat8E5M2,
                                ElementType::kInt8};
  const char* const kArchitectures[] = {"sm_90a", "sm_80", "sm_89", "sm_120a"};
  const QuantizeMode kModes[] = {QuantizeMode::kStaticTensor, QuantizeMode::kDynamicToken,
                                 QuantizeMode::kDynamicGroup};
  // Every two of type, code and mode meet every day, all three in three days.
  for (size_t x = 0; x < 3; ++x) {
    for (size_t code = 0; code < 3; ++code) {
      for (size_t mode = 0; mode < 3; ++mode) {
        if (!sample_.Has(x + code + mode, 3)) continue;
        const size_t index = 3 * x + code + sample_.day();
        ExpectCompiles({.x_type = kTypes[x],
                        .code_type = kCodes[code],
                        .mode = kModes[mode],
                        .k = index % 2 == 0 ? 8192 : 32768,
                        .group = kModes[mode] == QuantizeMode::kDynamicGroup ? 128 : 0},
                       index % 3 == 0 ? kArchitectures[index / 3 % 4] : "sm_90a");
      }
    }
  }
}

TEST_F(QuantizeCompileTest, KernelsThatMultiplyCompileWithoutSpills) {
  for (const ElementType x_type : {ElementType::kBFloat16, ElementType::kFloat16, ElementType::kFloat32,
                                   ElementType::kFloat8E4M3, ElementType::kFloat8E5M2, ElementType::kInt8}) {
    ExpectCompiles(ScaleProblemOf(8192, x_type), "sm_90a");
  }
  for (const char* architecture : {"sm_75", "sm_80", "sm_100a", "sm_120a"}) {
    ExpectCompiles(ScaleProblemOf(8192, ElementType::kBFloat16), architecture);
    ExpectCompiles(ScaleProblemOf(8192, ElementType::kFloat16), architecture);
  }
  size_t index = 0;
  for (const ElementType x_type : {ElementType::kBFloat16, ElementType::kFloat32}) {
    for (const QuantizeMode mode : {QuantizeMode::kStaticTensor, QuantizeMode::kDynamicToken,
                                    QuantizeMode::kDynamicGroup}) {
      for (const int64_t k : {8192, 32768}) {
        if (!sample_.Has(index++, 2)) continue;
        ExpectCompiles({.x_type = x_type,
                        .mode = mode,
                        .k = k,
                        .group = mode == QuantizeMode::kDynamicGroup ? 128 : 0,
                        .input_scale = true},
                       "sm_90a");
      }
    }
  }
}

TEST_F(QuantizeCompileTest, ActivationFunctionsAndHadamardTransformsCompileWithoutSpills) {
  QuantizeProblem problem{.k = 8192};
  for (const InputActivation activation :
       {InputActivation::kSiluAndMul, InputActivation::kSwigluClamped,
        InputActivation::kReluSquared}) {
    problem.activation = activation;
    ExpectCompiles(problem, "sm_90a");
  }
  problem.activation = InputActivation::kNone;
  for (const int block : {2, 128, 1024}) {
    problem.hadamard_block = block;
    ExpectCompiles(problem, "sm_90a");
  }
  problem.mode = QuantizeMode::kNone;
  problem.code_type = problem.x_type;
  ExpectCompiles(problem, "sm_90a");
  problem.code_type = ElementType::kFloat8E4M3;
  problem.mode = QuantizeMode::kDynamicGroup;
  problem.group = 128;
  problem.x_type = ElementType::kFloat32;
  problem.activation = InputActivation::kSiluAndMul;
  ExpectCompiles(problem, "sm_90a");
}

}  // namespace
}  // namespace gemmd
