#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/device/moe_activate.cuh"
#include "kernels/device/moe_combine.cuh"
#include "kernels/device/moe_route.cuh"

namespace gemmd::device {
namespace {

RoutingArgs Routing(const std::vector<int32_t>& ids, const std::vector<float>& weights,
                    int32_t top_k) {
  RoutingArgs args{};
  args.topk_ids = ids.data();
  args.topk_weights = weights.data();
  args.ids_row_stride = top_k;
  args.weights_row_stride = top_k;
  args.tokens = static_cast<int64_t>(ids.size()) / top_k;
  args.first_expert = 4;
  args.total_experts = 10;
  args.top_k = top_k;
  args.experts = 3;
  return args;
}

TEST(MoeSlotsTest, OnlyIdsOfThisLayerAreLocal) {
  const RoutingArgs args = Routing({0}, {1}, 1);
  EXPECT_EQ(LocalExpert(args, 4), 0);
  EXPECT_EQ(LocalExpert(args, 6), 2);
  for (const int32_t id : {-1, 0, 3, 7, 9, 10, 1 << 30, std::numeric_limits<int32_t>::min(),
                           std::numeric_limits<int32_t>::max()}) {
    EXPECT_EQ(LocalExpert(args, id), kAbsent) << id;
  }
}

TEST(MoeSlotsTest, AnIdPastTotalIsAbsentEvenWithinTheLayer) {
  RoutingArgs args = Routing({0}, {1}, 1);
  args.total_experts = 5;
  EXPECT_EQ(LocalExpert(args, 4), 0);
  EXPECT_EQ(LocalExpert(args, 5), kAbsent);
}

TEST(MoeCombineTest, SumsPresentSlotsAndLeavesOutAbsentOnes) {
  const std::vector<int32_t> ids = {4, -1, 6, -1, 9, 0};
  const std::vector<float> weights = {0.5f, std::nanf(""), 2.0f, 1, 1, 1};
  const float nan = std::nanf("");
  const std::vector<float> in = {3, nan, 5, nan, nan, nan};
  MoeCombineArgs args{};
  args.routing = Routing(ids, weights, 3);
  args.in = in.data();
  args.columns = 1;
  EXPECT_EQ(CombineElement(args, 0, 0), 11.5f);
  EXPECT_EQ(CombineElement(args, 1, 0), 0.0f);
  args.weights_applied = 1;
  EXPECT_EQ(CombineElement(args, 0, 0), 8.0f);
}

TEST(MoeActivateTest, FindsGateAndUpInBothLayouts) {
  const std::vector<float> halves = {1, 2, 10, 20};
  const std::vector<float> interleaved = {1, 10, 2, 20};
  MoeActivateArgs args{};
  args.columns_out = 2;
  args.activation = MoeActivation::kSiluAndMul;
  const float expected = 2.0f / (1.0f + std::exp(-2.0f)) * 20.0f;
  args.in = halves.data();
  EXPECT_FLOAT_EQ(ActivateElement(args, 0, 1), expected);
  args.in = interleaved.data();
  args.interleaved = 1;
  EXPECT_FLOAT_EQ(ActivateElement(args, 0, 1), expected);
}

TEST(MoeActivateTest, ClampsAsGptOssDoes) {
  const GateActivation activation{MoeActivation::kSwigluClamped, true, 1.702f, 7.0f};
  EXPECT_FLOAT_EQ(activation.Gated(100, 100), 7.0f / (1.0f + std::exp(-1.702f * 7.0f)) * 8.0f);
  EXPECT_FLOAT_EQ(activation.Gated(-3, -100), -3.0f / (1.0f + std::exp(1.702f * 3.0f)) * -6.0f);
  EXPECT_TRUE(std::isnan(activation.Gated(std::nanf(""), 1)));
  EXPECT_TRUE(std::isnan(activation.Gated(1, std::nanf(""))));
}

TEST(MoeActivateTest, HugeGatesStayFinite) {
  const GateActivation activation{MoeActivation::kSiluAndMul, false, 0, 0};
  EXPECT_EQ(activation.Gated(-200, 3), 0.0f);
  EXPECT_EQ(activation.Gated(200, 3), 600.0f);
}

TEST(MoeActivateTest, ReluSquaredKeepsNan) {
  EXPECT_EQ(GateActivation::ReluSquared(-3), 0.0f);
  EXPECT_EQ(GateActivation::ReluSquared(3), 9.0f);
  EXPECT_TRUE(std::isnan(GateActivation::ReluSquared(std::nanf(""))));
}

TEST(MoeRouteTest, OrdersByLogitThenById) {
  EXPECT_TRUE(IsBefore({2, 5}, {1, 0}));
  EXPECT_TRUE(IsBefore({1, 0}, {1, 5}));
  EXPECT_FALSE(IsBefore({1, 5}, {1, 0}));
  EXPECT_FALSE(IsBefore({1, 5}, {1, 5}));
  EXPECT_FALSE(IsBefore({OrderedLogit(std::nanf("")), 0}, {-1e30f, 9}));
}

}  // namespace
}  // namespace gemmd::device
