// What    Which experts serve which token with which weight.
// Shapes  One list per token in slot order (the order of topk_ids, or of falling router weight).
// Errors  CheckRoutedIds: InvalidArgument EXPERT_OUT_OF_RANGE: an id below -1 or not below
//         total_experts.
// Threads Pure functions.
#ifndef GEMMD_CORE_EXEC_CPU_ROUTING_H_
#define GEMMD_CORE_EXEC_CPU_ROUTING_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/exec/device.h"

namespace gemmd {

struct Choice {
  int64_t token = 0;
  int64_t expert = 0;  // of this layer: global id - first_expert
  double weight = 0;
};

// The ids that the request gives for tokens [first, first + tokens); OK when it gives logits.
absl::Status CheckRoutedIds(const MoeCall& call, int64_t first, int64_t tokens);

// Choices of tokens [first, first + tokens), of this layer's experts only: every other id is left
// out, the client may have changed them since they were checked. Sorted by token, then slot.
std::vector<Choice> Route(const MoeCall& call, int64_t first, int64_t tokens);

struct RoutedExpert {
  int64_t id = 0;
  double weight = 0;
};

// Softmax over all `logits`, the `top_k` largest, equal ones by lower id; a NaN counts as smaller
// than every number. With `renormalize` the chosen weights sum to 1.
std::vector<RoutedExpert> TopKOfSoftmax(absl::Span<const double> logits, int top_k,
                                        bool renormalize);

}  // namespace gemmd

#endif  // GEMMD_CORE_EXEC_CPU_ROUTING_H_
