#include "kernels/select/sm90_invariant.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

namespace gemmd {
namespace {

std::vector<QuantSpec> InvariantSpecs() {
  std::vector<QuantSpec> specs;
  for (const NumberFormat& weight : {IntegerFormat(4), IntegerFormat(8), kFloat4E2M1, kFloat8E4M3}) {
    for (const NumberFormat& activation : {kNoFormat, kInt8, kFloat8E4M3}) {
      for (const int64_t group : {32, 128, 0}) {
        QuantSpec spec;
        spec.weight = weight;
        spec.scale = kBFloat16;
        spec.scale_block_k = group;
        spec.activation = activation;
        specs.push_back(spec);
      }
    }
  }
  return specs;
}

TEST(Sm90InvariantTest, IsOneOfTheOrdinaryKernelsAndServesEveryMAndEveryPlaceOfX) {
  int checked = 0;
  for (const QuantSpec& spec : InvariantSpecs()) {
    for (const LayerShape& shape : {LayerShape{1, 1, 32}, {1, 576, 1152}, {1, 8192, 8192}}) {
      if (!SupportsSm90(spec, shape, "sm_90a").ok()) continue;
      for (const ElementType x_type : Sm90XTypes(spec)) {
        const auto choice = ChooseBatchInvariantSm90(spec, shape, x_type);
        ASSERT_TRUE(choice.has_value()) << shape.n;
        EXPECT_EQ(choice->largest_m, std::numeric_limits<int64_t>::max());
        EXPECT_FALSE(choice->config.is_slabwise()) << "it would need a map of x";
        EXPECT_EQ(choice->resident, 0);
        const auto ordinary = ChooseSm90(spec, shape, x_type);
        EXPECT_TRUE(std::any_of(ordinary.begin(), ordinary.end(), [&](const Sm90Choice& one) {
          return one.cluster == choice->cluster &&
                 RenderProgram(one.config) == RenderProgram(choice->config);
        })) << "it would be one more compilation";
        ++checked;
      }
    }
  }
  EXPECT_GT(checked, 20);
}

}  // namespace
}  // namespace gemmd
