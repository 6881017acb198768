// Mixtures of experts with input scales on a GPU against the double-precision reference. `*Small*` is the part
// for compute-sanitizer.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/gpu/gpu_fixture.h"
#include "tests/kernels/moe_runner.h"

namespace gemmd::testing {
namespace {

enum class Factors { kNone, kShared, kOfEachExpert };

class MoeInputScaleTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    is_cpu_ = !IsSkipped() && device().description().kind == DeviceKind::kCpu;
  }

  StandardTensor Tensor(const LayerShape& shape, Factors factors) {
    StandardTensor tensor = RandomTensor(Spec(IntegerFormat(4), kFloat16, 1, 16), shape, random_);
    if (factors == Factors::kNone) return tensor;
    tensor = WithInputScale(std::move(tensor), random_, largest_factor_);
    return factors == Factors::kShared ? WithSharedFactors(std::move(tensor)) : tensor;
  }

  void Run(int64_t experts, int64_t k, int64_t hidden, Factors gate_up_factors, Factors down_factors,
           std::vector<MoeCase> cases) {
    const StandardTensor gate_up = Tensor({experts, 2 * hidden, k}, gate_up_factors);
    const StandardTensor down = Tensor({experts, 33, hidden}, down_factors);
    const auto layers = LoadAll({gate_up, down});
    ASSERT_NE(layers[0], nullptr);
    ASSERT_NE(layers[1], nullptr);
    for (MoeCase& c : cases) {
      c.invalid_ids = !is_cpu_;
      if (is_cpu_) c.x_type = kFloat32;  // it does not round products
      RunMoeCase(runner(), gate_up, down, layers[0], layers[1], c, random_);
      ASSERT_FALSE(HasFailure()) << experts << " experts, " << c.tokens << " tokens, top " << c.top_k;
    }
  }

  bool is_cpu_ = false;
  double largest_factor_ = 4;
};

const std::vector<MoeCase> kCases = {
    {.tokens = 0, .x_type = kBFloat16},
    {.tokens = 1, .x_type = kBFloat16},
    {.tokens = 17, .top_k = 3, .x_type = kBFloat16, .first_expert = 2, .total_experts = 12, .gap = 3, .shift = 1},
    {.tokens = 65, .x_type = kFloat32},
    {.tokens = 130, .x_type = kBFloat16, .from_logits = true},
    {.tokens = 5, .x_type = kBFloat16, .all_absent = true},
    {.tokens = 33, .top_k = 1, .x_type = kBFloat16, .router_weight_on_input = true}};

TEST_F(MoeInputScaleTest, SmallRequestsWithFactorsOfEachExpert) {
  Run(5, 41, 25, Factors::kOfEachExpert, Factors::kOfEachExpert, kCases);
  Run(8, 64, 48, Factors::kOfEachExpert, Factors::kNone, kCases);
}

TEST_F(MoeInputScaleTest, SmallRequestsWithSharedFactors) {
  Run(5, 41, 25, Factors::kShared, Factors::kShared, kCases);
  Run(8, 64, 48, Factors::kNone, Factors::kShared, kCases);
  Run(8, 64, 48, Factors::kShared, Factors::kOfEachExpert, kCases);
}

// With small factors: hidden values stay within float16's range.
TEST_F(MoeInputScaleTest, SmallRequestsOfFloat16) {
  largest_factor_ = 0.25;
  const std::vector<MoeCase> cases = {{.tokens = 33, .x_type = kFloat16},
                                      {.tokens = 130, .x_type = kFloat16, .from_logits = true}};
  Run(5, 41, 25, Factors::kOfEachExpert, Factors::kOfEachExpert, cases);
  Run(5, 41, 25, Factors::kShared, Factors::kShared, cases);
}

TEST_F(MoeInputScaleTest, ManyTokensAndColumns) {
  const std::vector<MoeCase> cases = {
      {.tokens = 600, .top_k = 4, .x_type = kBFloat16, .sampled = 20},
      {.tokens = 3000, .top_k = 2, .x_type = kBFloat16, .sampled = 10}};
  Run(16, 2100, 700, Factors::kOfEachExpert, Factors::kOfEachExpert, cases);
  Run(16, 2100, 700, Factors::kShared, Factors::kOfEachExpert, cases);
}

}  // namespace
}  // namespace gemmd::testing
