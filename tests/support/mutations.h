// What    tests/data/mutations.json: changes to golden checkpoints, and what a reader must do with the result.
#ifndef GEMMD_TESTS_SUPPORT_MUTATIONS_H_
#define GEMMD_TESTS_SUPPORT_MUTATIONS_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/core/checkpoint/test_checkpoint.h"

namespace gemmd {

// The files that one mutation leaves are `checkpoint` after Mutate.
void Mutate(EditableCheckpoint& checkpoint, const nlohmann::json& mutation);

// The module that a mutation is about: the one it names, the one of its tensor, or `only_module`, the only
// one of the case.
std::string MutatedModule(const nlohmann::json& mutation, const std::string& only_module);

// What must come of it. Where a policy is left to the reader, this is ours.
enum class MutationOutcome {
  kSameWeights,    // accepted, with the weights of the unchanged case
  kOtherGrouping,  // accepted, with the order of columns that the tensors name
  kRejected,       // BAD_CHECKPOINT or UNSUPPORTED_FORMAT
};
MutationOutcome OutcomeOf(const nlohmann::json& mutation);

}  // namespace gemmd

#endif  // GEMMD_TESTS_SUPPORT_MUTATIONS_H_
