#include "core/exec/cpu_moe.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "absl/types/span.h"
#include "core/exec/cpu_matmul.h"
#include "core/exec/cpu_numbers.h"
#include "core/exec/cpu_routing.h"
#include "core/exec/cpu_stop.h"
#include "core/quant/input_scale.h"
#include "core/quant/reference.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

using Choices = absl::Span<const Choice>;

// One chunk of tokens: their choices, and the choices of each expert (indices into `choices`).
class Chunk {
 public:
  Chunk(ThreadPool& pool, const StandardTensor& gate_up, const StandardTensor& down,
        const MoeCall& call, int64_t first_token, int64_t tokens, Choices choices, StopCheck& stop)
      : pool_(pool),
        gate_up_(gate_up),
        down_(down),
        call_(call),
        first_token_(first_token),
        tokens_(tokens),
        choices_(choices),
        stop_(stop),
        intermediate_(static_cast<size_t>(static_cast<int64_t>(choices.size()) * down.shape.k)) {
    for (size_t i = 0; i < choices.size(); ++i) {
      by_expert_[choices[i].expert].push_back(static_cast<int64_t>(i));
    }
  }

  void Run() {
    for (const auto& [expert, members] : by_expert_) {
      if (stop_.stopped()) return;
      GateUp(expert, members);
    }
    Down();
  }

 private:
  // x of the members, times the router weight when it goes on the input.
  void Gather(int64_t expert, const std::vector<int64_t>& members, double* out) const {
    const int64_t k = call_.x.columns;
    for (size_t i = 0; i < members.size(); ++i) {
      const Choice& choice = choices_[static_cast<size_t>(members[i])];
      double* row = out + static_cast<int64_t>(i) * PaddedColumns(k);
      ReadRow(call_.x, choice.token, row);
      if (MultipliesInput(gate_up_, call_.x.type)) {
        MultiplyInputScale(gate_up_, expert, absl::MakeSpan(row, static_cast<size_t>(k)));
      }
      if (!call_.router_weight_on_input) continue;
      std::for_each(row, row + k, [&](double& value) { value *= choice.weight; });
    }
  }

  bool gated() const { return call_.activation != ActivationFunction::kReluSquared; }

  // Rows of gate (first half) and up (second half) for intermediate columns [first, first + count).
  std::vector<int64_t> GateUpRows(int64_t first, int64_t count) const {
    std::vector<int64_t> rows;
    const int64_t intermediate = down_.shape.k;
    for (int half = 0; half < (gated() ? 2 : 1); ++half) {
      for (int64_t i = first; i < first + count; ++i) {
        const bool interleaved = gated() && gate_up_.gate_up_interleaved;
        rows.push_back(interleaved ? 2 * i + half : half * intermediate + i);
      }
    }
    return rows;
  }

  void GateUp(int64_t expert, const std::vector<int64_t>& members) {
    const int64_t k = gate_up_.shape.k;
    const int64_t intermediate = down_.shape.k;
    const int64_t block = std::max<int64_t>(WeightBlockRows(gate_up_.shape.n, k) / 2, 1);
    const auto tokens = static_cast<int64_t>(members.size());
    Scratch x(PaddedRows(tokens) * PaddedColumns(k));
    Gather(expert, members, x.data());
    ZeroPadding(x.data(), tokens, k);
    pool_.ParallelFor((intermediate + block - 1) / block, [&](int64_t index) {
      if (stop_.stopped()) return;
      const int64_t first = index * block;
      GateUpBlock(expert, members, x.data(), first, std::min(block, intermediate - first));
    });
  }

  void GateUpBlock(int64_t expert, const std::vector<int64_t>& members, const double* x,
                   int64_t first, int64_t count) {
    const int64_t k = gate_up_.shape.k;
    const auto tokens = static_cast<int64_t>(members.size());
    const std::vector<int64_t> rows = GateUpRows(first, count);
    const auto n = static_cast<int64_t>(rows.size());
    Scratch w(n * PaddedColumns(k));
    const int64_t padded = PaddedRows(tokens);
    Scratch product(n * padded);
    DequantizeRows(gate_up_, expert, rows, w.data());
    Multiply(Order::kMatrix, x, tokens, w.data(), n, k, product.data());
    for (int64_t i = 0; i < count; ++i) {
      const double gate_bias = Bias(gate_up_, expert, rows[static_cast<size_t>(i)]);
      const double up_bias =
          gated() ? Bias(gate_up_, expert, rows[static_cast<size_t>(count + i)]) : 0;
      for (int64_t t = 0; t < tokens; ++t) {
        const double gate = product.data()[i * padded + t] + gate_bias;
        const double up = gated() ? product.data()[(count + i) * padded + t] + up_bias : 0;
        const double value = Activate(call_.activation, call_.alpha, call_.limit, gate, up);
        StoreIntermediate(members[static_cast<size_t>(t)], first + i, value);
      }
    }
  }

  // Rounded to the type of x; every such value is a float32.
  void StoreIntermediate(int64_t choice, int64_t column, double value) {
    intermediate_[static_cast<size_t>(choice * down_.shape.k + column)] =
        static_cast<float>(RoundTo(call_.x.type, value));
  }

  void Down() {
    const int64_t n = down_.shape.n;
    const int64_t block = WeightBlockRows(n, down_.shape.k);
    pool_.ParallelFor((n + block - 1) / block, [&](int64_t index) {
      const int64_t first = index * block;
      DownBlock(first, std::min(block, n - first));
    });
  }

  void DownBlock(int64_t first, int64_t count) const {
    // contributions[choice, column]
    std::vector<double> contributions(choices_.size() * static_cast<size_t>(count));
    std::vector<int64_t> rows(static_cast<size_t>(count));
    std::iota(rows.begin(), rows.end(), first);
    Scratch w(count * PaddedColumns(down_.shape.k));
    for (const auto& [expert, members] : by_expert_) {
      if (stop_.stopped()) return;
      DequantizeRows(down_, expert, rows, w.data());
      Contribute(expert, members, rows, w.data(), contributions);
    }
    Combine(first, count, contributions);
  }

  void Contribute(int64_t expert, const std::vector<int64_t>& members,
                  const std::vector<int64_t>& rows, const double* w,
                  std::vector<double>& contributions) const {
    const int64_t k = down_.shape.k;
    const auto tokens = static_cast<int64_t>(members.size());
    const auto count = static_cast<int64_t>(rows.size());
    const int64_t padded = PaddedRows(tokens);
    Scratch x(padded * PaddedColumns(k));
    for (int64_t t = 0; t < tokens; ++t) {
      const float* from = intermediate_.data() + members[static_cast<size_t>(t)] * k;
      double* row = x.data() + t * PaddedColumns(k);
      std::copy(from, from + k, row);
      if (!MultipliesInput(down_, call_.x.type)) continue;
      MultiplyInputScale(down_, expert, absl::MakeSpan(row, static_cast<size_t>(k)));
    }
    ZeroPadding(x.data(), tokens, k);
    Scratch product(count * padded);
    Multiply(Order::kMatrix, x.data(), tokens, w, count, k, product.data());
    for (int64_t i = 0; i < count; ++i) {
      const double bias = Bias(down_, expert, rows[static_cast<size_t>(i)]);
      for (int64_t t = 0; t < tokens; ++t) {
        const int64_t choice = members[static_cast<size_t>(t)];
        contributions[static_cast<size_t>(choice * count + i)] =
            product.data()[i * padded + t] + bias;
      }
    }
  }

  // y[token] = sum over its slots in order; a token without any gets zeros.
  void Combine(int64_t first, int64_t count, const std::vector<double>& contributions) const {
    std::vector<double> sum(static_cast<size_t>(count));
    size_t next = 0;
    for (int64_t token = first_token_; token < first_token_ + tokens_; ++token) {
      std::fill(sum.begin(), sum.end(), 0.0);
      for (; next < choices_.size() && choices_[next].token == token; ++next) {
        const double weight = call_.router_weight_on_input ? 1.0 : choices_[next].weight;
        const double* from = contributions.data() + next * static_cast<size_t>(count);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += weight * from[i];
      }
      WriteRow(call_.y, token, first, sum.data(), count);
    }
  }

  ThreadPool& pool_;
  const StandardTensor& gate_up_;
  const StandardTensor& down_;
  const MoeCall& call_;
  const int64_t first_token_;
  const int64_t tokens_;
  const Choices choices_;
  StopCheck& stop_;
  std::vector<float> intermediate_;  // [choices, I]
  std::map<int64_t, std::vector<int64_t>> by_expert_;
};

int64_t TokensAtATime(const MoeCall& call) {
  constexpr int64_t kInput = int64_t{256} << 20;
  constexpr int64_t kOutput = int64_t{64} << 20;
  const int64_t top_k =
      call.topk_ids.has_value() ? call.topk_ids->columns : call.router_logits->top_k;
  const auto block = [](const LayerShape& shape) { return WeightBlockRows(shape.n, shape.k); };
  const LayerShape& down = call.down->shape();
  const int64_t input = 8 * (call.x.columns + down.k);
  const int64_t output = 8 * std::max(block(call.gate_up->shape()), block(down));
  const int64_t slots = std::min(kInput / input, kOutput / output);
  return std::clamp<int64_t>(slots / std::max<int64_t>(top_k, 1), 16, 1 << 16);
}

}  // namespace

double Activate(ActivationFunction function, double alpha, double limit, double gate, double up) {
  // A clamp keeps a NaN: the comparison with it is false.
  const auto at_most = [](double value, double bound) { return value > bound ? bound : value; };
  const auto at_least = [](double value, double bound) { return value < bound ? bound : value; };
  if (function == ActivationFunction::kReluSquared) {
    const double positive = at_least(gate, 0.0);
    return positive * positive;
  }
  if (limit > 0) {
    gate = at_most(gate, limit);
    up = at_least(at_most(up, limit), -limit);
  }
  if (function == ActivationFunction::kSiluAndMul) return gate / (1.0 + std::exp(-gate)) * up;
  return gate / (1.0 + std::exp(-alpha * gate)) * (up + 1.0);
}

absl::Status RunCpuMoe(ThreadPool& pool, const StandardTensor& gate_up, const StandardTensor& down,
                       const MoeCall& call) {
  const int64_t chunk_tokens = TokensAtATime(call);
  StopCheck stop(call.stop);
  const auto in_chunks = [&](const auto& body) -> absl::Status {
    for (int64_t first = 0; first < call.x.rows; first += chunk_tokens) {
      if (stop.stopped()) return stop.status();
      GEMMD_RETURN_IF_ERROR(body(first, std::min(chunk_tokens, call.x.rows - first)));
    }
    return absl::OkStatus();
  };
  GEMMD_RETURN_IF_ERROR(in_chunks(
      [&](int64_t first, int64_t tokens) { return CheckRoutedIds(call, first, tokens); }));
  return in_chunks([&](int64_t first, int64_t tokens) {
    const std::vector<Choice> choices = Route(call, first, tokens);
    Chunk(pool, gate_up, down, call, first, tokens, choices, stop).Run();
    return stop.status();
  });
}

}  // namespace gemmd
