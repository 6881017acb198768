// Mixtures of experts with input scales on the fake driver, whose kernels run on the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/kernels/device/host_quantize.h"
#include "tests/kernels/launch/fake_kernels.h"
#include "tests/kernels/launch/quantize_path.h"
#include "tests/kernels/moe_runner.h"
#include "tests/support/fake_driver.h"

namespace gemmd::testing {
namespace {

using ::testing::ElementsAre;

constexpr QuantSpec kMoeInt4{.weight = IntegerFormat(4), .scale = kFloat16, .scale_block_k = 16};
using Gemm = HostConfig<IntegerFormat(4), kFloat16, ZeroPointKind::kNone,
                        RowMapping::kIndexed>;
template <ElementType kX>
using MoeScaler =
    HostQuantizeConfig<kX, kX, QuantizeMode::kNone, 128, InputActivation::kNone, 0, 64, true>;

struct Layers {
  StandardTensor gate_up;
  StandardTensor down;
};

class MoeInputScaleTest : public QuantizePath {
 protected:
  MoeInputScaleTest() : QuantizePath({.cc_major = 8}, 41) {
    Open(1 << 22);
    UseKernels<MoeScaler<ElementType::kBFloat16>, Gemm>();
  }

  void See(const cuda::FakeLaunch&, const QuantizeArgs& args) override { rows_.push_back(args.m); }

  // Odd numbers of columns: rows of the workspace are padded.
  Layers RandomLayers(int64_t experts, bool scales_gate_up, bool scales_down) {
    Layers layers{RandomTensor(kMoeInt4, {experts, 2 * 25, 41}, random_),
                  RandomTensor(kMoeInt4, {experts, 33, 25}, random_)};
    if (scales_gate_up) layers.gate_up = WithInputScale(std::move(layers.gate_up), random_);
    if (scales_down) layers.down = WithInputScale(std::move(layers.down), random_);
    return layers;
  }

  void Run(const Layers& layers, MoeCase c) {
    rows_.clear();
    c.invalid_ids = true;
    DeviceRunner runner(*device_);
    const auto gate_up = runner.Load(layers.gate_up);
    const auto down = runner.Load(layers.down);
    ASSERT_NE(gate_up, nullptr);
    ASSERT_NE(down, nullptr);
    RunMoeCase(runner, layers.gate_up, layers.down, gate_up, down, c, random_);
  }

  std::vector<int64_t> rows_;  // of each launch that multiplies
};

const MoeCase kCase{.tokens = 9, .top_k = 3, .x_type = kBFloat16, .first_expert = 2, .total_experts = 9,
                    .gap = 3, .shift = 1};

TEST_F(MoeInputScaleTest, EverySlotHasTheFactorsOfItsExpert) {
  Run(RandomLayers(5, true, true), kCase);
  EXPECT_THAT(rows_, ElementsAre(27, 27));
}

TEST_F(MoeInputScaleTest, TokensAreMultipliedOnceWhereExpertsAgree) {
  Layers layers = RandomLayers(5, true, true);
  layers.gate_up = WithSharedFactors(std::move(layers.gate_up));
  layers.down = WithSharedFactors(std::move(layers.down));
  Run(layers, kCase);
  EXPECT_THAT(rows_, ElementsAre(9, 27));
}

TEST_F(MoeInputScaleTest, EachLayerMayHaveThemAlone) {
  Run(RandomLayers(4, true, false), kCase);
  EXPECT_THAT(rows_, ElementsAre(27));
  Run(RandomLayers(4, false, true), kCase);
  EXPECT_THAT(rows_, ElementsAre(27));
}

TEST_F(MoeInputScaleTest, OneExpertAndOneChoice) {
  Run(RandomLayers(1, true, true), {.tokens = 7, .top_k = 1, .x_type = kBFloat16, .router_weight_on_input = true});
  EXPECT_THAT(rows_, ElementsAre(7, 7));
}

TEST_F(MoeInputScaleTest, RouterLogitsAndOtherTypesOfX) {
  UseKernels<MoeScaler<ElementType::kFloat32>, Gemm>();
  Run(RandomLayers(4, true, true), {.tokens = 9, .x_type = kFloat32, .from_logits = true, .total_experts = 6});
  UseKernels<MoeScaler<ElementType::kFloat16>, Gemm>();
  Run(RandomLayers(4, true, true), {.tokens = 9, .top_k = 2, .x_type = kFloat16});
}

// The host does not know which slots have an expert: the kernel leaves the others alone.
TEST_F(MoeInputScaleTest, SlotsWithoutExpertsAreLaunchedAndRequestsWithoutTokensAreNot) {
  Run(RandomLayers(4, true, true), {.tokens = 5, .top_k = 2, .x_type = kBFloat16, .all_absent = true});
  EXPECT_THAT(rows_, ElementsAre(10, 10));
  Run(RandomLayers(4, true, true), {.tokens = 0, .x_type = kBFloat16});
  EXPECT_TRUE(rows_.empty());
}

TEST_F(MoeInputScaleTest, LargeRequestsRunInChunks) {
  Open(/*workspace_bytes=*/20000);
  Run(RandomLayers(4, true, true), {.tokens = 100, .top_k = 2, .x_type = kBFloat16});
  EXPECT_GT(rows_.size(), 6u);
}

// A static scale of activations is of dense requests.
TEST_F(MoeInputScaleTest, ADenseLayerOfOneExpertThatQuantizesIsMultipliedOnly) {
  Layers layers = RandomLayers(1, true, true);
  for (StandardTensor* tensor : {&layers.gate_up, &layers.down}) {
    tensor->spec.activation = kFloat8E4M3;
    tensor->spec.activation_scale = ActivationScaleKind::kStaticTensor;
    tensor->activation_scale.resize(sizeof(float));
    SetValue<float>(tensor->activation_scale, 0, 0.37f);
  }
  Run(layers, {.tokens = 7, .top_k = 1, .x_type = kBFloat16});
  EXPECT_THAT(rows_, ElementsAre(7, 7));
}

}  // namespace
}  // namespace gemmd::testing
