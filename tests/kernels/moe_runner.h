// What    Runs mixture-of-experts cases on a Device and compares with the double-precision reference.
// Keys    As device_runner.h.
#ifndef GEMMD_TESTS_KERNELS_MOE_RUNNER_H_
#define GEMMD_TESTS_KERNELS_MOE_RUNNER_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "core/exec/device.h"
#include "tests/kernels/device_runner.h"
#include "tests/kernels/random_layer.h"
#include "tests/kernels/scaled_runner.h"

namespace gemmd::testing {

struct MoeCase {
  int64_t tokens = 1;
  int64_t top_k = 2;
  NumberFormat x_type = kFloat16;
  NumberFormat y_type = kFloat32;
  ActivationFunction activation = ActivationFunction::kSiluAndMul;
  float limit = 0;
  bool integer_valued = false;  // exact; use kReluSquared and narrow weights
  bool router_weight_on_input = false;
  bool from_logits = false;
  bool renormalize = false;
  int64_t first_expert = 0;
  int64_t total_experts = 0;  // 0 = first_expert + E
  bool all_absent = false;    // every id is -1 or another rank's
  int64_t gap = 0;
  int64_t shift = 0;
  int64_t sampled = 0;       // tokens compared; 0 = all
  bool invalid_ids = false;  // some ids are total_experts and more: a GPU masks them
};

struct MoeRun {
  HostMatrix y;
  MoeReport report;
};

struct MoeRouting {
  HostMatrix ids;
  HostMatrix weights;
  HostMatrix logits;
};

// A mix of ids of this layer, of other ranks, -1 and perhaps invalid ones.
inline int64_t RandomExpertId(const MoeCase& c, int64_t experts, int64_t total, Random& random) {
  const uint64_t kind = c.all_absent ? 7 + random() % 2 : random() % 10;
  if (kind < 7)
    return c.first_expert + static_cast<int64_t>(random() % static_cast<uint64_t>(experts));
  if (kind == 7 || (kind == 8 && !c.invalid_ids)) return -1;
  if (kind == 8) return total + static_cast<int64_t>(random() % 3);
  const auto id = static_cast<int64_t>(random() % static_cast<uint64_t>(total));
  return id;
}

inline MoeRouting RandomRouting(const MoeCase& c, int64_t experts, int64_t total, Random& random) {
  MoeRouting routing;
  routing.ids = PoisonedMatrix(IntegerFormat(32), c.tokens, c.top_k, c.top_k + c.gap, true);
  routing.weights = PoisonedMatrix(kFloat32, c.tokens, c.top_k, c.top_k + c.gap);
  for (int64_t token = 0; token < c.tokens; ++token) {
    for (int64_t i = 0; i < c.top_k; ++i) {
      routing.ids.set(token, i, static_cast<double>(RandomExpertId(c, experts, total, random)));
      const double weight = c.integer_valued ? std::ldexp(1.0, static_cast<int>(random() % 4) - 2)
                                             : Uniform(random, -0.2, 1);
      routing.weights.set(token, i, weight);
    }
  }
  if (!c.from_logits) return routing;
  routing.logits = RandomMatrix(c.x_type, c.tokens, total, random, false, total + c.gap);
  for (int64_t token = 0; token < c.tokens; ++token) {  // a tie among the largest
    routing.logits.set(token, total / 2, 3);
    routing.logits.set(token, total - 1, 3);
  }
  return routing;
}

// Replaces ids and weights by what softmax and top_k of the logits say.
inline void RouteByReference(const MoeCase& c, MoeRouting& routing) {
  for (int64_t token = 0; token < c.tokens; ++token) {
    const std::vector<double> logits = MatrixRow(routing.logits, token);
    std::vector<int64_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit);
    double chosen = 0;
    for (int64_t i = 0; i < c.top_k; ++i)
      chosen += std::exp(logits[static_cast<size_t>(order[i])]) / sum;
    for (int64_t i = 0; i < c.top_k; ++i) {
      const double weight = std::exp(logits[static_cast<size_t>(order[i])]) / sum;
      routing.ids.set(token, i, static_cast<double>(order[i]));
      routing.weights.set(token, i, c.renormalize ? weight / chosen : weight);
    }
  }
}

inline double ActivateReference(const MoeCase& c, double gate, double up) {
  if (c.activation == ActivationFunction::kReluSquared) return gate > 0 ? gate * gate : 0;
  if (c.limit > 0) {
    gate = std::min<double>(gate, c.limit);
    up = std::clamp<double>(up, -c.limit, c.limit);
  }
  if (c.activation == ActivationFunction::kSwigluClamped) {
    return gate / (1 + std::exp(-1.702 * gate)) * (up + 1);
  }
  return gate / (1 + std::exp(-gate)) * up;
}

// h of one slot, not rounded.
inline std::vector<double> HiddenReference(const StandardTensor& gate_up, const MoeCase& c,
                                           const std::vector<double>& x, int64_t expert) {
  const bool gated = c.activation != ActivationFunction::kReluSquared;
  const int64_t columns = gated ? gate_up.shape.n / 2 : gate_up.shape.n;
  const auto product = [&](int64_t row) {
    return ExactDot(x, WeightRow(gate_up, expert, row)).value + Bias(gate_up, expert, row);
  };
  std::vector<double> hidden(static_cast<size_t>(columns));
  for (int64_t i = 0; i < columns; ++i) {
    const bool interleaved = gate_up.gate_up_interleaved;
    const double gate = product(gated && interleaved ? 2 * i : i);
    const double up = gated ? product(interleaved ? 2 * i + 1 : columns + i) : 0;
    hidden[static_cast<size_t>(i)] = ActivateReference(c, gate, up);
  }
  return hidden;
}

// x of one token as a GPU multiplies it for `expert`.
inline std::vector<double> InputReference(const StandardTensor& gate_up, int64_t expert,
                                          const HostMatrix& x, int64_t token) {
  std::vector<double> input = MatrixRow(x, token);
  if (!gate_up.has_input_scale) return input;
  for (size_t k = 0; k < input.size(); ++k) {
    const float product =
        static_cast<float>(input[k]) * FactorOf(gate_up, expert, static_cast<int64_t>(k));
    input[k] = DecodeNumber(x.type, EncodeNumber(x.type, product));
  }
  return input;
}

// Output row of one token: (value, allowed error) per column. h, and its products with an input scale, are rounded
// to x's type on the device: up to half a unit in the last place of each element, all in the same direction
// at worst.
inline std::vector<std::pair<double, double>> MoeReferenceRow(
    const StandardTensor& gate_up, const StandardTensor& down, const MoeCase& c, int64_t total,
    const HostMatrix& x, const MoeRouting& routing, int64_t token) {
  const int64_t out = down.shape.n;
  std::vector<ExactSum> sums(static_cast<size_t>(out));
  for (int64_t i = 0; i < c.top_k; ++i) {
    const auto id = static_cast<int64_t>(routing.ids.at(token, i));
    const int64_t expert = id - c.first_expert;
    if (id < 0 || id >= total || expert < 0 || expert >= gate_up.shape.experts) continue;
    const double weight = routing.weights.at(token, i);
    std::vector<double> input = InputReference(gate_up, expert, x, token);
    if (c.router_weight_on_input) {
      for (double& value : input) value *= weight;
    }
    std::vector<double> hidden = HiddenReference(gate_up, c, input, expert);
    for (size_t k = 0; down.has_input_scale && k < hidden.size(); ++k) {
      hidden[k] *= FactorOf(down, expert, static_cast<int64_t>(k));
    }
    const double factor = c.router_weight_on_input ? 1 : weight;
    for (int64_t n = 0; n < out; ++n) {
      const ExactSum sum = ExactDot(hidden, WeightRow(down, expert, n));
      const double bias = Bias(down, expert, n);
      sums[static_cast<size_t>(n)].value += factor * (sum.value + bias);
      sums[static_cast<size_t>(n)].magnitude += std::abs(factor) * (sum.magnitude + std::abs(bias));
    }
  }
  const int roundings = down.has_input_scale ? 2 : 1;
  const double unit =
      roundings * std::ldexp(1.0, -(c.x_type.mantissa_bits + 1)) + std::ldexp(1.0, -16);
  std::vector<std::pair<double, double>> row;
  for (const ExactSum& sum : sums) {
    row.emplace_back(sum.value, Tolerance(sum, c.y_type) + sum.magnitude * unit);
  }
  return row;
}

inline MoeRun RunMoeCase(DeviceRunner& runner, const StandardTensor& gate_up,
                         const StandardTensor& down,
                         const std::shared_ptr<DeviceLayer>& gate_up_layer,
                         const std::shared_ptr<DeviceLayer>& down_layer, const MoeCase& c,
                         Random& random) {
  const int64_t experts = gate_up.shape.experts;
  const int64_t total = c.total_experts == 0 ? c.first_expert + experts : c.total_experts;
  const HostMatrix x = RandomMatrix(c.x_type, c.tokens, gate_up.shape.k, random, c.integer_valued,
                                    gate_up.shape.k + c.gap);
  MoeRouting routing = RandomRouting(c, experts, total, random);
  MoeRun run;
  run.y = PoisonedMatrix(c.y_type, c.tokens, down.shape.n, down.shape.n + c.gap);
  const DeviceMatrix device_x = runner.Upload(x, c.shift);
  const DeviceMatrix device_y = runner.Upload(run.y, c.shift);
  const DeviceMatrix ids = runner.Upload(routing.ids, c.shift);
  const DeviceMatrix weights = runner.Upload(routing.weights, c.shift);
  DeviceMatrix logits;
  MoeCall call;
  call.gate_up = gate_up_layer;
  call.down = down_layer;
  call.x = device_x.view;
  call.y = device_y.view;
  if (c.from_logits) {
    logits = runner.Upload(routing.logits, c.shift);
    call.router_logits = {logits.view, static_cast<int>(c.top_k), c.renormalize};
    RouteByReference(c, routing);
  } else {
    call.topk_ids = ids.view;
    call.topk_weights = weights.view;
  }
  call.activation = c.activation;
  call.limit = c.limit;
  call.router_weight_on_input = c.router_weight_on_input;
  call.first_expert = c.first_expert;
  call.total_experts = total;
  const absl::StatusOr<MoeReport> report = runner.device().RunMoe(runner.stream(), call);
  EXPECT_TRUE(report.ok()) << report.status().ToString();
  if (!report.ok()) return run;
  run.report = *report;
  runner.Download(device_y, run.y);
  for (const int64_t token : SampleIndices(c.tokens, c.sampled, random)) {
    const auto expected = MoeReferenceRow(gate_up, down, c, total, x, routing, token);
    for (int64_t n = 0; n < down.shape.n; ++n) {
      const auto [value, tolerance] = expected[static_cast<size_t>(n)];
      EXPECT_NEAR(run.y.at(token, n), value, c.integer_valued ? 0 : tolerance)
          << "y[" << token << ", " << n << "]";
      if (::testing::Test::HasFailure()) return run;
    }
  }
  return run;
}

}  // namespace gemmd::testing

#endif  // GEMMD_TESTS_KERNELS_MOE_RUNNER_H_
