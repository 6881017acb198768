#include "core/exec/cpu_routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "core/exec/cpu_numbers.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

absl::Status CheckId(int64_t id, int64_t total, int64_t token, int64_t slot) {
  if (id >= -1 && id < total) return absl::OkStatus();
  return Error(
      absl::StatusCode::kInvalidArgument, "EXPERT_OUT_OF_RANGE",
      absl::StrCat("topk_ids[", token, ", ", slot, "] is ", id, ", expected -1 to ", total - 1));
}

bool IsLocal(const MoeCall& call, int64_t id) {
  return id >= call.first_expert && id - call.first_expert < call.gate_up->shape().experts;
}

std::vector<Choice> RouteByIds(const MoeCall& call, int64_t first, int64_t tokens) {
  const int64_t top_k = call.topk_ids->columns;
  std::vector<double> weights(static_cast<size_t>(top_k));
  std::vector<Choice> choices;
  for (int64_t token = first; token < first + tokens; ++token) {
    ReadRow(*call.topk_weights, token, weights.data());
    for (int64_t slot = 0; slot < top_k; ++slot) {
      const int64_t id = ReadInt32(*call.topk_ids, token, slot);
      if (!IsLocal(call, id)) continue;
      choices.push_back({token, id - call.first_expert, weights[static_cast<size_t>(slot)]});
    }
  }
  return choices;
}

std::vector<Choice> RouteByLogits(const MoeCall& call, int64_t first, int64_t tokens) {
  const RouterLogits& router = *call.router_logits;
  std::vector<double> logits(static_cast<size_t>(router.logits.columns));
  std::vector<Choice> choices;
  for (int64_t token = first; token < first + tokens; ++token) {
    ReadRow(router.logits, token, logits.data());
    for (const RoutedExpert& expert : TopKOfSoftmax(logits, router.top_k, router.renormalize)) {
      if (!IsLocal(call, expert.id)) continue;
      choices.push_back({token, expert.id - call.first_expert, expert.weight});
    }
  }
  return choices;
}

}  // namespace

std::vector<RoutedExpert> TopKOfSoftmax(absl::Span<const double> logits, int top_k,
                                        bool renormalize) {
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto rank = [&](int64_t id) {
    const double logit = logits[static_cast<size_t>(id)];
    return std::isnan(logit) ? -HUGE_VAL : logit;
  };
  const auto middle = order.begin() + std::min<int64_t>(top_k, static_cast<int64_t>(order.size()));
  std::partial_sort(order.begin(), middle, order.end(), [&](int64_t a, int64_t b) {
    return rank(a) != rank(b) ? rank(a) > rank(b) : a < b;
  });
  const double largest = rank(order.front());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  std::vector<RoutedExpert> chosen;
  double chosen_sum = 0;
  for (auto it = order.begin(); it != middle; ++it) {
    const double weight = std::exp(logits[static_cast<size_t>(*it)] - largest) / sum;
    chosen.push_back({*it, weight});
    chosen_sum += weight;
  }
  if (renormalize) {
    for (RoutedExpert& expert : chosen) expert.weight /= chosen_sum;
  }
  return chosen;
}

absl::Status CheckRoutedIds(const MoeCall& call, int64_t first, int64_t tokens) {
  if (!call.topk_ids.has_value()) return absl::OkStatus();
  for (int64_t token = first; token < first + tokens; ++token) {
    for (int64_t slot = 0; slot < call.topk_ids->columns; ++slot) {
      const int64_t id = ReadInt32(*call.topk_ids, token, slot);
      GEMMD_RETURN_IF_ERROR(CheckId(id, call.total_experts, token, slot));
    }
  }
  return absl::OkStatus();
}

std::vector<Choice> Route(const MoeCall& call, int64_t first, int64_t tokens) {
  return call.topk_ids.has_value() ? RouteByIds(call, first, tokens)
                                   : RouteByLogits(call, first, tokens);
}

}  // namespace gemmd
