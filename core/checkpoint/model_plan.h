// What    The modules of a checkpoint that one call registers, and the part of each that a rank holds.
// Names   Patterns know '*' (any text, dots included) and '?'; without either they are names.
// Errors  NotFound MODULE_NOT_FOUND for a pattern without a module, and when nothing is left; InvalidArgument
//         SHAPE_MISMATCH for ranks that do not divide the experts; BAD_CHECKPOINT for a tensor that the index
//         and the files disagree on, and with `fuse` for stacks and groups that lack a part (model_parts.h), for
//         missing layers and projections (model_layers.h); what Checkpoint::ListModules says. That a module cannot
//         be read is found when it is read. Of a checkpoint with hidden files what is there is planned.
// Threads Pure functions of the files.
#ifndef GEMMD_CORE_CHECKPOINT_MODEL_PLAN_H_
#define GEMMD_CORE_CHECKPOINT_MODEL_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/checkpoint_files.h"
#include "core/quant/rank_slice.h"

namespace gemmd {

// Which modules, and which part of each.
struct ModelSelection {
  // Patterns; empty: all of ListCandidates.
  std::vector<std::string> modules;
  std::vector<std::string> exclude;  // patterns
  bool fuse = false;                 // join parts (model_parts.h) before patterns are matched
  AxisSlice tensor;                  // rank of tensor parallelism
  AxisSlice experts;                 // of stacks, and which of experts that are stored one by one
  // Patterns of modules that `tensor` cuts along N and along K; others are whole. Both empty: by the last
  // part of the name, q_proj, gate_up_proj, w1 and so on along N; o_proj, down_proj and w2 along K.
  std::vector<std::string> row_modules;
  std::vector<std::string> column_modules;
};

struct PlannedModule {
  std::string module;
  SliceRequest slice;
  uint64_t bytes = 0;  // of its tensors in the files; 0 where they cannot be found
};

struct ModelPlan {
  std::vector<PlannedModule> modules;
  std::vector<std::string> unmatched_exclude;  // patterns of `exclude` that leave nothing out
  std::vector<std::string> notes;  // what is not read (unread_notes.h); with `fuse`: which parts stay single, and why
  std::vector<absl::Status> problems;  // all that the checkpoint lacks; empty where PlanModel gives a plan
  // Files that may hold more modules (checkpoint_files.h). What is missing may be in them: their status tells it, not
  // `problems`.
  std::vector<HiddenFile> hidden_files;
};

// All modules that a call may choose from, sorted: those of Checkpoint::ListModules, and in a quantized checkpoint
// those with 8-bit weights that lack their scales. Where its files hold none of both, as with a config that quantizes the
// key-value cache alone or leaves every module out, all linears.
absl::StatusOr<std::vector<std::string>> ListCandidates(const Checkpoint& checkpoint);

// The first problem is an error.
absl::StatusOr<ModelPlan> PlanModel(const Checkpoint& checkpoint, const ModelSelection& selection);

// With what the checkpoint lacks (BAD_CHECKPOINT) in `problems`, of which it tells all.
absl::StatusOr<ModelPlan> PlanDamagedModel(const Checkpoint& checkpoint,
                                           const ModelSelection& selection);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_MODEL_PLAN_H_
