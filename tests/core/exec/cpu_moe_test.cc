// The MoE block of the CPU device against a naive loop over tokens, slots and rows.
#include "core/exec/cpu_moe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "core/exec/cpu_device.h"
#include "core/exec/cpu_numbers.h"
#include "core/exec/cpu_routing.h"
#include "kernels/base/status.h"
#include "tests/support/tensors.h"

namespace gemmd {
namespace {

using testing::HostMatrix;
using testing::Int4Spec;
using testing::Random;
using testing::RandomTensor;
using testing::Uniform;

constexpr NumberFormat kIndexInt32 = IntegerFormat(32);

struct MoeSetup {
  int64_t experts = 5;
  int64_t k = 64;
  int64_t intermediate = 40;
  int64_t n = 48;
  ActivationFunction activation = ActivationFunction::kSiluAndMul;
  bool interleaved = false;
  float limit = 0;
  bool weight_on_input = false;
  int64_t first_expert = 0;
  int64_t total_experts = 5;
};

double NaiveActivation(const MoeSetup& setup, double gate, double up) {
  const double alpha = 1.702f;
  const double limit = setup.limit;
  switch (setup.activation) {
    case ActivationFunction::kReluSquared:
      return gate > 0 ? gate * gate : 0;
    case ActivationFunction::kSiluAndMul:
      if (limit > 0) {
        gate = std::min(gate, limit);
        up = std::max(std::min(up, limit), -limit);
      }
      return gate * (1 / (1 + std::exp(-gate))) * up;
    case ActivationFunction::kSwigluClamped:
      gate = std::min(gate, limit);
      up = std::max(std::min(up, limit), -limit);
      return gate * (1 / (1 + std::exp(-alpha * gate))) * (up + 1);
  }
  return 0;
}

class MoeBench {
 public:
  explicit MoeBench(const MoeSetup& s) : setup(s), device(CreateCpuDevice({2})) {
    QuantSpec spec = Int4Spec();
    spec.bias = kFloat16;
    const bool gated = s.activation != ActivationFunction::kReluSquared;
    gate_up = RandomTensor(spec, {s.experts, (gated ? 2 : 1) * s.intermediate, s.k}, 31);
    gate_up.gate_up_interleaved = s.interleaved;
    spec.scale_block_k = 16;
    down = RandomTensor(spec, {s.experts, s.n, s.intermediate}, 32);
    call.gate_up = device->LoadLayer(gate_up).value();
    call.down = device->LoadLayer(down).value();
    call.activation = s.activation;
    call.limit = s.limit;
    call.router_weight_on_input = s.weight_on_input;
    call.first_expert = s.first_expert;
    call.total_experts = s.total_experts;
    stream = device->CreateStream().value();
  }

  absl::StatusOr<MoeReport> Run(HostMatrix& x, HostMatrix& ids, HostMatrix& weights,
                                HostMatrix& y) {
    call.x = x.view();
    call.y = y.view();
    call.topk_ids = ids.view();
    call.topk_weights = weights.view();
    return device->RunMoe(*stream, call);
  }

  double Dot(const StandardTensor& tensor, int64_t expert, int64_t row,
             const std::vector<double>& x) const {
    std::vector<double> w(x.size());
    DequantizeRow(tensor, expert, row, absl::MakeSpan(w));
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += x[i] * w[i];
    return sum + Bias(tensor, expert, row);
  }

  // Output of one expert for one token, unrounded at the end.
  std::vector<double> Expert(int64_t expert, std::vector<double> x, double weight,
                             const NumberFormat& type) const {
    if (setup.weight_on_input) {
      for (double& value : x) value *= weight;
    }
    std::vector<double> middle;
    const bool gated = setup.activation != ActivationFunction::kReluSquared;
    for (int64_t i = 0; i < setup.intermediate; ++i) {
      const int64_t gate_row = setup.interleaved ? 2 * i : i;
      const int64_t up_row = setup.interleaved ? 2 * i + 1 : setup.intermediate + i;
      const double gate = Dot(gate_up, expert, gate_row, x);
      const double up = gated ? Dot(gate_up, expert, up_row, x) : 0;
      middle.push_back(RoundTo(type, NaiveActivation(setup, gate, up)));
    }
    std::vector<double> out;
    for (int64_t n = 0; n < setup.n; ++n) {
      out.push_back(Dot(down, expert, n, middle) * (setup.weight_on_input ? 1 : weight));
    }
    return out;
  }

  // Compares with a tolerance of one unit in the last place of the intermediate and the output: sums in
  // another order may round a tie the other way.
  void Check(HostMatrix& x, HostMatrix& ids, HostMatrix& weights, HostMatrix& y,
             const NumberFormat& type) {
    for (int64_t m = 0; m < x.rows(); ++m) {
      std::vector<double> row;
      for (int64_t k = 0; k < setup.k; ++k) row.push_back(x.Get(m, k));
      std::vector<double> sum(static_cast<size_t>(setup.n), 0.0);
      for (int64_t slot = 0; slot < ids.columns(); ++slot) {
        const auto id = static_cast<int64_t>(ids.Get(m, slot)) - setup.first_expert;
        if (id < 0 || id >= setup.experts) continue;
        const auto out = Expert(id, row, weights.Get(m, slot), type);
        for (size_t n = 0; n < sum.size(); ++n) sum[n] += out[n];
      }
      for (int64_t n = 0; n < setup.n; ++n) {
        const double expected = sum[static_cast<size_t>(n)];
        const double epsilon = std::ldexp(1.0, -type.mantissa_bits);
        EXPECT_NEAR(y.Get(m, n), expected, std::abs(expected) * epsilon + 1e-12)
            << "token " << m << " column " << n;
      }
    }
  }

  MoeSetup setup;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  StandardTensor gate_up;
  StandardTensor down;
  MoeCall call;
};

class CpuMoeTest : public ::testing::Test {
 protected:
  void Compare(const MoeSetup& setup, const NumberFormat& type, int64_t tokens, int64_t top_k) {
    MoeBench bench(setup);
    Random random(static_cast<uint64_t>(tokens));
    HostMatrix x(type, tokens, setup.k, 2);
    HostMatrix ids(kIndexInt32, tokens, top_k);
    HostMatrix weights(kFloat32, tokens, top_k);
    HostMatrix y(type, tokens, setup.n, 3);
    x.Fill([&](int64_t, int64_t) { return static_cast<double>(Uniform(random, -16, 16)) / 128; });
    ids.Fill([&](int64_t, int64_t) { return Uniform(random, -1, setup.total_experts - 1); });
    weights.Fill([&](int64_t, int64_t) { return static_cast<double>(Uniform(random, 1, 8)) / 8; });
    const auto report = bench.Run(x, ids, weights, y);
    ASSERT_TRUE(report.ok()) << report.status();
    bench.Check(x, ids, weights, y, type);
  }
};

TEST_F(CpuMoeTest, EqualsTheNaiveLoopForEveryActivation) {
  MoeSetup setup;
  Compare(setup, kFloat32, 17, 2);
  setup.limit = 3;
  Compare(setup, kFloat32, 9, 3);
  setup.activation = ActivationFunction::kSwigluClamped;
  setup.limit = 7;
  Compare(setup, kFloat32, 9, 2);
  setup.interleaved = true;
  Compare(setup, kFloat32, 9, 2);
  setup.activation = ActivationFunction::kReluSquared;
  setup.interleaved = false;
  Compare(setup, kFloat32, 9, 2);
}

TEST_F(CpuMoeTest, RoundsTheIntermediateToTheTypeOfX) {
  Compare({}, kFloat16, 12, 2);
  Compare({}, kBFloat16, 12, 2);
}

TEST_F(CpuMoeTest, PutsTheRouterWeightOnTheInputWhenAsked) {
  MoeSetup setup;
  setup.weight_on_input = true;
  Compare(setup, kFloat32, 8, 1);
}

TEST_F(CpuMoeTest, LeavesExpertsOfOtherRanksOut) {
  MoeSetup setup;
  setup.first_expert = 10;
  setup.total_experts = 40;
  Compare(setup, kFloat32, 30, 4);
}

TEST_F(CpuMoeTest, ATokenWithoutExpertsGivesAZeroRow) {
  MoeBench bench({});
  HostMatrix x(kFloat16, 2, 64);
  x.Fill([](int64_t, int64_t) { return std::nan(""); });
  HostMatrix ids(kIndexInt32, 2, 2);
  ids.Fill([](int64_t, int64_t) { return -1; });
  HostMatrix weights(kFloat32, 2, 2);
  HostMatrix y(kFloat16, 2, 48);
  ASSERT_TRUE(bench.Run(x, ids, weights, y).ok());
  for (int64_t n = 0; n < 48; ++n) EXPECT_EQ(y.Code(1, n), 0u);
}

TEST_F(CpuMoeTest, RefusesIdsOutOfRangeAndNamesThem) {
  for (const int bad : {5, -2, 2000000000}) {
    MoeBench bench({});
    HostMatrix x(kFloat16, 2, 64);
    HostMatrix ids(kIndexInt32, 2, 2);
    ids.Fill([&](int64_t row, int64_t slot) { return row == 1 && slot == 0 ? bad : 0; });
    HostMatrix weights(kFloat32, 2, 2);
    HostMatrix y(kFloat16, 2, 48);
    const absl::Status status = bench.Run(x, ids, weights, y).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(ReasonOf(status), "EXPERT_OUT_OF_RANGE");
    EXPECT_NE(status.message().find("topk_ids[1, 0]"), absl::string_view::npos) << status;
  }
}

TEST_F(CpuMoeTest, StopsWhereverItIsAsked) {
  const MoeSetup setup;
  MoeBench bench(setup);
  constexpr int64_t kTokens = 7;
  HostMatrix x(kFloat16, kTokens, setup.k);
  HostMatrix ids(kIndexInt32, kTokens, 2);
  HostMatrix weights(kFloat32, kTokens, 2);
  HostMatrix y(kFloat16, kTokens, setup.n);
  x.Fill([](int64_t, int64_t) { return 0.5; });
  ids.Fill([](int64_t m, int64_t slot) { return (m + slot) % 5; });
  weights.Fill([](int64_t, int64_t) { return 0.5; });
  int asked = 0;
  bench.call.stop = [&] {
    ++asked;
    return absl::OkStatus();
  };
  ASSERT_TRUE(bench.Run(x, ids, weights, y).ok());
  const int all = asked;
  EXPECT_GT(all, 10) << "for every expert in both layers";
  for (int last = 1; last <= all; ++last) {
    asked = 0;
    bench.call.stop = [&]() -> absl::Status {
      if (++asked < last) return absl::OkStatus();
      return absl::CancelledError("enough");
    };
    EXPECT_EQ(bench.Run(x, ids, weights, y).status(), absl::CancelledError("enough")) << last;
    EXPECT_EQ(asked, last) << "not asked again";
  }
}

TEST_F(CpuMoeTest, NoTokensIsLegal) {
  MoeBench bench({});
  HostMatrix x(kFloat16, 0, 64);
  HostMatrix ids(kIndexInt32, 0, 2);
  HostMatrix weights(kFloat32, 0, 2);
  HostMatrix y(kFloat16, 0, 48);
  EXPECT_TRUE(bench.Run(x, ids, weights, y).ok());
}

TEST_F(CpuMoeTest, ANanTokenSpoilsNoOther) {
  MoeBench bench({});
  Random random(3);
  HostMatrix x(kBFloat16, 6, 64);
  x.FillRandom(random);
  HostMatrix ids(kIndexInt32, 6, 2);
  ids.Fill([](int64_t row, int64_t slot) { return (row + slot) % 5; });
  HostMatrix weights(kFloat32, 6, 2);
  weights.Fill([](int64_t, int64_t) { return 0.5; });
  HostMatrix clean(kBFloat16, 6, 48);
  ASSERT_TRUE(bench.Run(x, ids, weights, clean).ok());
  x.SetCode(2, 9, 0x7fc0);
  HostMatrix dirty(kBFloat16, 6, 48);
  ASSERT_TRUE(bench.Run(x, ids, weights, dirty).ok());
  for (int64_t n = 0; n < 48; ++n) {
    EXPECT_TRUE(std::isnan(dirty.Get(2, n)));
    for (const int64_t m : {0, 1, 3, 4, 5}) EXPECT_EQ(dirty.Code(m, n), clean.Code(m, n));
  }
}

TEST_F(CpuMoeTest, RoutesByLogitsLikeByTheIdsAndWeightsTheyGive) {
  MoeBench bench({});
  Random random(8);
  HostMatrix x(kFloat32, 7, 64);
  x.FillRandom(random);
  HostMatrix logits(kFloat32, 7, 5);
  logits.FillRandom(random);
  HostMatrix y(kFloat32, 7, 48);
  bench.call.x = x.view();
  bench.call.y = y.view();
  bench.call.router_logits = RouterLogits{logits.view(), 2, true};
  ASSERT_TRUE(bench.device->RunMoe(*bench.stream, bench.call).ok());
  HostMatrix ids(kIndexInt32, 7, 2);
  HostMatrix weights(kFloat32, 7, 2);
  for (int64_t m = 0; m < 7; ++m) {
    std::vector<double> row;
    for (int64_t e = 0; e < 5; ++e) row.push_back(logits.Get(m, e));
    const auto chosen = TopKOfSoftmax(row, 2, true);
    for (int64_t slot = 0; slot < 2; ++slot) {
      ids.Set(m, slot, static_cast<double>(chosen[static_cast<size_t>(slot)].id));
      weights.Set(m, slot, chosen[static_cast<size_t>(slot)].weight);
    }
  }
  // Weights in float32 differ from those in double by 2^-24 of themselves.
  HostMatrix by_ids(kFloat32, 7, 48);
  bench.call.router_logits.reset();
  ASSERT_TRUE(bench.Run(x, ids, weights, by_ids).ok());
  for (int64_t m = 0; m < 7; ++m) {
    for (int64_t n = 0; n < 48; ++n) {
      EXPECT_NEAR(y.Get(m, n), by_ids.Get(m, n), 1e-4 + 1e-5 * std::abs(y.Get(m, n)));
    }
  }
}

TEST(RoutingTest, EqualLogitsGoToTheLowerId) {
  const double logits[] = {1, 3, 3, 2, 3};
  const auto chosen = TopKOfSoftmax(logits, 2, false);
  ASSERT_EQ(chosen.size(), 2u);
  EXPECT_EQ(chosen[0].id, 1);
  EXPECT_EQ(chosen[1].id, 2);
}

TEST(RoutingTest, WeightsAreTheSoftmaxAndSumToOneWhenRenormalized) {
  const double logits[] = {0, std::log(2.0), std::log(5.0)};
  const auto plain = TopKOfSoftmax(logits, 2, false);
  EXPECT_DOUBLE_EQ(plain[0].weight, 5.0 / 8);
  EXPECT_DOUBLE_EQ(plain[1].weight, 2.0 / 8);
  const auto normal = TopKOfSoftmax(logits, 2, true);
  EXPECT_DOUBLE_EQ(normal[0].weight, 5.0 / 7);
  EXPECT_DOUBLE_EQ(normal[1].weight, 2.0 / 7);
}

TEST(RoutingTest, HugeLogitsDoNotOverflow) {
  const double logits[] = {1e5, 1e5, -1e5};
  const auto chosen = TopKOfSoftmax(logits, 3, false);
  EXPECT_DOUBLE_EQ(chosen[0].weight, 0.5);
  EXPECT_DOUBLE_EQ(chosen[2].weight, 0);
}

}  // namespace
}  // namespace gemmd
