// Dense GEMMs whose matrix unit sums in float16, where a request permits it (SM90). `*Small*` is the part for
// compute-sanitizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/exec/cuda_layer.h"
#include "tests/gpu/gemm_fixture.h"
#include "tests/support/eventually.h"

namespace gemmd::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// 72 roundings to 11 bits of a sum that is far below the sum of |terms|.
constexpr int kHalfSumBits = 8;

class HalfSumsTest : public GemmTest {
 protected:
  void SetUp() override {
    GemmTest::SetUp();
    if (IsSkipped()) return;
    if (device().description().architecture != "sm_90a") GTEST_SKIP() << "needs SM90";
  }

  // The first request asks for the kernels; returns when they are there.
  void Ask(const std::shared_ptr<DeviceLayer>& layer) {
    const HostMatrix x = RandomMatrix(kFloat16, 1, layer->shape().k, random_);
    Multiply(runner(), layer, x, kFloat32, {.fp16_accumulation = true});
    const auto* const cuda_layer = dynamic_cast<const CudaLayer*>(layer.get());
    ASSERT_NE(cuda_layer, nullptr);
    ASSERT_TRUE(Eventually([&] {
      return cuda_layer->plan()->HasAllFor({.x_type = ElementType::kFloat16, .half_sums = true});
    }));
  }

  void Run(const StandardTensor& tensor, const std::shared_ptr<DeviceLayer>& layer,
           const std::vector<int64_t>& sizes) {
    const auto choices = ChooseSm90(tensor.spec, layer->shape(), ElementType::kFloat16);
    for (const int64_t m : sizes) {
      const auto choice =
          std::find_if(choices.begin(), choices.end(), [m](const Sm90Choice& one) { return m <= one.largest_m; });
      ASSERT_NE(choice, choices.end());
      ASSERT_TRUE(choice->config.can_have_half_sums()) << "M " << m << " takes small tiles";
      const GemmCase c = {.m = m,
                          .x_gap = 32 - layer->shape().k % 16,
                          .y_gap = 5,
                          .sampled = 40,
                          .sum_bits = kHalfSumBits,
                          .fp16_accumulation = true};
      const GemmRun run = RunGemmCase(runner(), tensor, layer, c, random_);
      EXPECT_THAT(run.report.kernel, HasSubstr("_f16sums")) << m;
      ASSERT_FALSE(HasFailure()) << run.report.kernel << ", M " << m;
    }
  }
};

std::vector<QuantSpec> Specs() {
  std::vector<QuantSpec> specs = {Spec(IntegerFormat(4), kFloat16, 1, 128), Spec(IntegerFormat(8), kFloat16, 1, 0),
                                  Spec(kFloat4E2M1, kFloat8E4M3, 1, 16), Spec(kFloat16, kNoFormat, 0, 0)};
  specs[0].zero_point = ZeroPointKind::kInteger;
  specs[1].bias = kFloat16;
  return specs;
}

TEST_F(HalfSumsTest, ManyRowsOfEveryKindOfWeight) {
  constexpr LayerShape kShape = {1, 2120, 1152};
  for (const QuantSpec& spec : Specs()) {
    const StandardTensor tensor = RandomTensor(spec, kShape, random_);
    const auto layer = runner().Load(tensor);
    ASSERT_NE(layer, nullptr);
    Ask(layer);
    Run(tensor, layer, {2047, 2049, 4097});
    if (HasFatalFailure()) return;
  }
}

TEST_F(HalfSumsTest, SmallTilesWithTails) {
  const StandardTensor tensor = RandomTensor(Spec(IntegerFormat(4), kFloat16, 1, 64), {1, 2120, 520}, random_);
  const auto layer = runner().Load(tensor);
  ASSERT_NE(layer, nullptr);
  Ask(layer);
  Run(tensor, layer, {2049});
}

TEST_F(HalfSumsTest, OnlyFloat16XThatPermitsIt) {
  const StandardTensor tensor = RandomTensor(Spec(IntegerFormat(4), kFloat16, 1, 128), {1, 2112, 1024}, random_);
  const auto layer = runner().Load(tensor);
  ASSERT_NE(layer, nullptr);
  Ask(layer);
  for (GemmCase c : {GemmCase{.m = 512, .sampled = 20, .sum_bits = 11},
                     GemmCase{.m = 512, .sampled = 20, .batch_invariant = true, .fp16_accumulation = true},
                     GemmCase{.m = 512, .x_type = kBFloat16, .sampled = 20, .sum_bits = 8, .fp16_accumulation = true}}) {
    const GemmRun run = RunGemmCase(runner(), tensor, layer, c, random_);
    EXPECT_THAT(run.report.kernel, Not(HasSubstr("_f16sums")));
  }
}

// That the sums are float16 shows where they leave its range, and nowhere else does anything get infinite.
TEST_F(HalfSumsTest, SumsBeyondFloat16AreInfinite) {
  StandardTensor tensor = RandomTensor(Spec(kFloat16, kNoFormat, 0, 0), {1, 2112, 1024}, random_);
  for (size_t i = 0; i < tensor.codes.size(); i += 2) std::memcpy(tensor.codes.data() + i, "\0\x54", 2);  // 64
  const auto layer = runner().Load(tensor);
  ASSERT_NE(layer, nullptr);
  Ask(layer);
  HostMatrix x = PoisonedMatrix(kFloat16, 512, 1024);
  for (size_t i = 0; i < x.bytes.size(); i += 2) std::memcpy(x.bytes.data() + i, "\0\x3c", 2);  // 1
  for (size_t i = 0; i < 2048; i += 2) std::memcpy(x.bytes.data() + i, "\0\x38", 2);            // first row: 1/2
  const HostMatrix y = Multiply(runner(), layer, x, kFloat32, {.fp16_accumulation = true});
  EXPECT_EQ(y.at(0, 7), 32768);
  EXPECT_TRUE(std::isinf(y.at(1, 7)));
  EXPECT_EQ(Multiply(runner(), layer, x, kFloat32).at(1, 7), 65536);
}

TEST_F(HalfSumsTest, EveryRunGivesTheSameBits) {
  const StandardTensor tensor = RandomTensor(Spec(IntegerFormat(4), kFloat16, 1, 128), {1, 4096, 4096}, random_);
  const auto layer = runner().Load(tensor);
  ASSERT_NE(layer, nullptr);
  Ask(layer);
  const HostMatrix x = RandomMatrix(kFloat16, 320, 4096, random_);
  const HostMatrix first = Multiply(runner(), layer, x, kFloat32, {.fp16_accumulation = true});
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(Multiply(runner(), layer, x, kFloat32, {.fp16_accumulation = true}).bytes, first.bytes) << i;
  }
}

}  // namespace
}  // namespace gemmd::testing
