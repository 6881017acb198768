// What    Which modules of a checkpoint are parts of one layer: projections that engines run as one, and experts
//         that are stored one by one. Joined names are those that composite.h puts together again.
// Errors  InvalidArgument BAD_CHECKPOINT for parts that the model must have and the files lack.
// Threads Pure functions.
#ifndef GEMMD_CORE_CHECKPOINT_MODEL_PARTS_H_
#define GEMMD_CORE_CHECKPOINT_MODEL_PARTS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/checkpoint_files.h"

namespace gemmd {

// `modules` with q, k and v in one place as qkv_proj, gate and up as gate_up_proj, w1 and w3 as w13, q_a_proj
// and kv_a_proj_with_mqa as fused_qkv_a_proj; and experts.N.* of all N as experts.*. Sorted. A group that is
// not whole stays as it is.
std::vector<std::string> FuseModules(const std::vector<std::string>& modules);

// "a.b.c" -> "a.b." and "c".
std::pair<std::string, std::string> SplitModule(const std::string& module);

// "a.experts.7." -> "a.experts." and 7.
std::optional<std::pair<std::string, int64_t>> ExpertOf(const std::string& prefix);

// Whether every stack of experts among `modules` has all that its config counts, each with the same parts. A
// stack with a gap is damage, not single layers.
absl::Status CheckStacks(const CheckpointFiles& files, const std::vector<std::string>& modules);

// Parts of groups among `chosen` that FuseModules cannot join because others are missing, in words; an error where
// the model's other layers have what is missing and nothing in its config says why this one does not. `modules` are
// those that FuseModules was given; `named` are parts that were asked for by their own names.
absl::StatusOr<std::vector<std::string>> CheckGroups(const CheckpointFiles& files,
                                                     const std::vector<std::string>& modules,
                                                     const std::vector<std::string>& chosen,
                                                     const std::set<std::string>& named);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_MODEL_PARTS_H_
