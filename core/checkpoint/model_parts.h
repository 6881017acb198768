// What    Which modules of a checkpoint are parts of one layer: projections that engines run as one, and experts
//         that are stored one by one. Joined names are those that composite.h puts together again.
// Errors  InvalidArgument BAD_CHECKPOINT, one for every part that the model must have and the files lack.
// Threads Pure functions.
#ifndef GEMMD_CORE_CHECKPOINT_MODEL_PARTS_H_
#define GEMMD_CORE_CHECKPOINT_MODEL_PARTS_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/checkpoint/checkpoint_files.h"

namespace gemmd {

// `modules` with q, k and v in one place as qkv_proj, gate and up as gate_up_proj, w1 and w3 as w13, q_a_proj
// and kv_a_proj_with_mqa as fused_qkv_a_proj; and experts.N.* of all N as experts.*. Sorted. A group that is
// not whole stays as it is.
std::vector<std::string> FuseModules(const std::vector<std::string>& modules);

// The names under which `module` may be registered: its own, and those of what it is joined to (qkv_proj for q_proj,
// experts.w13 for experts.3.w1).
std::vector<std::string> JoinedNames(const std::string& module);

// Stacks of experts among `modules` that lack some of what their config counts, or whose experts have different
// parts. A stack with a gap is damage, not single layers.
std::vector<absl::Status> CheckStacks(const CheckpointFiles& files,
                                      const std::vector<std::string>& modules);

// Parts of groups among `chosen` that FuseModules cannot join because others are missing.
struct OpenGroups {
  // The model's other layers have what is missing, and nothing in its config says why this one does not.
  std::vector<absl::Status> problems;
  std::vector<std::string> notes;  // in words: where and why parts stay single
};
// `modules` are those that FuseModules was given; `named` are parts that were asked for by their own names.
OpenGroups CheckGroups(const CheckpointFiles& files, const std::vector<std::string>& modules,
                       const std::vector<std::string>& chosen, const std::set<std::string>& named);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_MODEL_PARTS_H_
