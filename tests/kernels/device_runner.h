// What    Runs GEMM and mixture-of-experts cases on a Device and compares with the double-precision
//         reference. Used on GPUs (tests/gpu) and on the fake driver (tests/kernels/launch).
// Keys    Outputs are poisoned before the run; guards around every matrix and gaps between rows must keep
//         their bytes.
#ifndef GEMMD_TESTS_KERNELS_DEVICE_RUNNER_H_
#define GEMMD_TESTS_KERNELS_DEVICE_RUNNER_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "core/exec/device.h"
#include "tests/kernels/random_layer.h"

namespace gemmd::testing {

struct DeviceMatrix {
  std::unique_ptr<Memory> memory;
  MatrixView view;
};

class DeviceRunner {
 public:
  static constexpr int64_t kGuardElements = 32;

  explicit DeviceRunner(Device& device) : device_(device) {
    auto stream = device.CreateStream();
    EXPECT_TRUE(stream.ok()) << stream.status().ToString();
    if (stream.ok()) stream_ = *std::move(stream);
  }

  Device& device() { return device_; }
  Stream& stream() { return *stream_; }

  std::shared_ptr<DeviceLayer> Load(const StandardTensor& tensor) {
    const absl::Status valid = Validate(tensor);
    EXPECT_TRUE(valid.ok()) << valid.ToString();
    auto layer = device_.LoadLayer(tensor);
    EXPECT_TRUE(layer.ok()) << layer.status().ToString();
    return layer.ok() ? *layer : nullptr;
  }

  // The matrix starts kGuardElements + `shift` elements into its allocation: odd shifts make it
  // aligned to its element only.
  DeviceMatrix Upload(const HostMatrix& matrix, int64_t shift = 0) {
    const int64_t before = (kGuardElements + shift) * matrix.element_bytes();
    const int64_t after = kGuardElements * matrix.element_bytes();
    Buffer bytes(static_cast<size_t>(before) + matrix.bytes.size() + static_cast<size_t>(after),
                 std::byte{0xff});
    std::copy(matrix.bytes.begin(), matrix.bytes.end(), bytes.begin() + before);
    auto memory = device_.Allocate(bytes.size());
    EXPECT_TRUE(memory.ok()) << memory.status().ToString();
    if (!memory.ok()) return {};
    EXPECT_TRUE(device_.CopyIn((*memory)->address(), bytes).ok());
    DeviceMatrix uploaded;
    uploaded.memory = *std::move(memory);
    uploaded.view = {uploaded.memory->address() + static_cast<uintptr_t>(before),
                     matrix.type,
                     matrix.is_signed_int,
                     matrix.rows,
                     matrix.columns,
                     matrix.row_stride};
    return uploaded;
  }

  // Reads the matrix back, and checks guards and gaps.
  void Download(const DeviceMatrix& from, HostMatrix& matrix) {
    Buffer bytes(from.memory->size());
    const absl::Status copied = device_.CopyOut(from.memory->address(), absl::MakeSpan(bytes));
    ASSERT_TRUE(copied.ok()) << copied.ToString();
    const auto start = static_cast<int64_t>(from.view.address - from.memory->address());
    const auto begin = bytes.begin() + start;
    std::copy(begin, begin + static_cast<int64_t>(matrix.bytes.size()), matrix.bytes.begin());
    const auto untouched = [](std::byte byte) { return byte == std::byte{0xff}; };
    const int64_t guard = kGuardElements * matrix.element_bytes();
    const auto end = begin + static_cast<int64_t>(matrix.bytes.size());
    EXPECT_TRUE(std::all_of(bytes.begin(), begin, untouched)) << "written before the matrix";
    EXPECT_TRUE(std::all_of(end, end + guard, untouched)) << "written past the matrix";
    for (int64_t row = 0; row < matrix.rows; ++row) {
      const auto gap = matrix.bytes.begin() +
                       (row * matrix.row_stride + matrix.columns) * matrix.element_bytes();
      const auto next =
          matrix.bytes.begin() + (row + 1) * matrix.row_stride * matrix.element_bytes();
      ASSERT_TRUE(std::all_of(gap, next, untouched)) << "written between rows, row " << row;
    }
  }

 private:
  Device& device_;
  std::unique_ptr<Stream> stream_;
};

// Up to `limit` of `count` indices: all of them, or both ends and random ones.
inline std::vector<int64_t> SampleIndices(int64_t count, int64_t limit, Random& random) {
  std::vector<int64_t> indices(static_cast<size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  if (limit == 0 || count <= limit) return indices;
  std::shuffle(indices.begin() + 1, indices.end() - 1, random);
  std::swap(indices[1], indices.back());
  indices.resize(static_cast<size_t>(limit));
  return indices;
}

struct GemmCase {
  int64_t m = 1;
  NumberFormat x_type = kFloat16;
  NumberFormat y_type = kFloat32;
  bool integer_valued = false;  // the result must be exact
  int64_t x_gap = 0;            // elements between rows
  int64_t y_gap = 0;
  int64_t shift = 0;            // DeviceRunner::Upload
  int64_t x_scale_columns = 0;  // 0 = no x_scale
  int64_t sampled = 0;          // rows and columns compared with the reference; 0 = all
  bool batch_invariant = false;
};

struct GemmRun {
  HostMatrix x;
  HostMatrix y;
  CallReport report;
};

// x as the product sees it: with its scales.
inline std::vector<double> ScaledRow(const StandardTensor& tensor, const HostMatrix& x,
                                     const std::optional<HostMatrix>& scale, int64_t row) {
  std::vector<double> values = MatrixRow(x, row);
  const bool is_static = !scale.has_value() && x.type.bits == 8 && !tensor.activation_scale.empty();
  float fixed = 1;
  if (is_static) std::memcpy(&fixed, tensor.activation_scale.data(), sizeof(fixed));
  for (size_t k = 0; k < values.size(); ++k) {
    if (!scale.has_value()) {
      values[k] *= fixed;
      continue;
    }
    const int64_t group = scale->columns == 1 ? tensor.shape.k : tensor.spec.activation_group;
    values[k] *= scale->at(row, static_cast<int64_t>(k) / group);
  }
  return values;
}

inline void CompareElement(const HostMatrix& y, int64_t m, int64_t n, const ExactSum& sum,
                           bool exact) {
  const double got = y.at(m, n);
  if (exact) {
    ASSERT_EQ(got, sum.value) << "y[" << m << ", " << n << "]";
  } else {
    ASSERT_NEAR(got, sum.value, Tolerance(sum, y.type))
        << "y[" << m << ", " << n << "], magnitude " << sum.magnitude;
  }
}

inline void CompareGemm(const StandardTensor& tensor, const GemmCase& c, const HostMatrix& x,
                        const std::optional<HostMatrix>& scale, const HostMatrix& y,
                        Random& random) {
  for (int64_t m = 0; m < y.rows; ++m) {
    for (int64_t n = 0; n < y.columns; ++n) {
      ASSERT_FALSE(std::isnan(y.at(m, n))) << "y[" << m << ", " << n << "] was not written";
    }
  }
  const std::vector<int64_t> rows = SampleIndices(y.rows, c.sampled, random);
  std::vector<std::vector<double>> activations;
  for (const int64_t m : rows) activations.push_back(ScaledRow(tensor, x, scale, m));
  for (const int64_t n : SampleIndices(y.columns, c.sampled, random)) {
    const std::vector<double> weights = WeightRow(tensor, 0, n);
    const double bias = Bias(tensor, 0, n);
    for (size_t i = 0; i < rows.size(); ++i) {
      ExactSum sum = ExactDot(activations[i], weights);
      sum.value += bias;
      sum.magnitude += std::abs(bias);
      CompareElement(y, rows[i], n, sum, c.integer_valued);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// Runs one case on `layer`, which holds `tensor`, and compares the result.
inline GemmRun RunGemmCase(DeviceRunner& runner, const StandardTensor& tensor,
                           const std::shared_ptr<DeviceLayer>& layer, const GemmCase& c,
                           Random& random) {
  const auto [experts, n, k] = tensor.shape;
  GemmRun run;
  run.x = RandomMatrix(c.x_type, c.m, k, random, c.integer_valued, k + c.x_gap);
  run.y = PoisonedMatrix(c.y_type, c.m, n, n + c.y_gap);
  const DeviceMatrix x = runner.Upload(run.x, c.shift);
  const DeviceMatrix y = runner.Upload(run.y, c.shift);
  GemmCall call;
  call.layer = layer;
  call.x = x.view;
  call.y = y.view;
  call.batch_invariant = c.batch_invariant;
  std::optional<HostMatrix> scale;
  DeviceMatrix device_scale;
  if (c.x_scale_columns > 0) {
    scale = RandomMatrix(kFloat32, c.m, c.x_scale_columns, random, false, c.x_scale_columns + 3);
    device_scale = runner.Upload(*scale, c.shift);
    call.x_scale = device_scale.view;
  }
  const absl::StatusOr<CallReport> report = runner.device().RunGemm(runner.stream(), call);
  EXPECT_TRUE(report.ok()) << report.status().ToString();
  if (!report.ok()) return run;
  run.report = *report;
  runner.Download(y, run.y);
  CompareGemm(tensor, c, run.x, scale, run.y, random);
  return run;
}

// ---- mixture of experts ----

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
  int64_t sampled = 0;  // tokens compared; 0 = all
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

// A mix of ids of this layer, of other ranks, -1 and (out of the contract's range) total and beyond.
inline int64_t RandomExpertId(const MoeCase& c, int64_t experts, int64_t total, Random& random) {
  const uint64_t kind = c.all_absent ? 7 + random() % 2 : random() % 10;
  if (kind < 7)
    return c.first_expert + static_cast<int64_t>(random() % static_cast<uint64_t>(experts));
  if (kind == 7) return -1;
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

// Output row of one token: (value, allowed error) per column. h is rounded to x's type on the device: up
// to half a unit in the last place of each element, all in the same direction at worst.
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
    std::vector<double> input = MatrixRow(x, token);
    if (c.router_weight_on_input) {
      for (double& value : input) value *= weight;
    }
    const std::vector<double> hidden = HiddenReference(gate_up, c, input, expert);
    const double factor = c.router_weight_on_input ? 1 : weight;
    for (int64_t n = 0; n < out; ++n) {
      const ExactSum sum = ExactDot(hidden, WeightRow(down, expert, n));
      const double bias = Bias(down, expert, n);
      sums[static_cast<size_t>(n)].value += factor * (sum.value + bias);
      sums[static_cast<size_t>(n)].magnitude += std::abs(factor) * (sum.magnitude + std::abs(bias));
    }
  }
  const double unit = std::ldexp(1.0, -(c.x_type.mantissa_bits + 1)) + std::ldexp(1.0, -16);
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

#endif  // GEMMD_TESTS_KERNELS_DEVICE_RUNNER_H_
