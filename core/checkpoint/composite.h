// What    Modules that a checkpoint holds in parts: fused projections (qkv_proj is q_proj, k_proj
//         and v_proj) and stacks of experts that are stored one by one (experts.gate_up_proj is
//         experts.0.gate_proj and experts.0.up_proj, or w1 and w3, and so on; or of the stacks experts.gate_proj
//         and experts.up_proj).
// Errors  InvalidArgument BAD_CHECKPOINT when some parts are there and others are missing, or of another size;
//         Unimplemented UNSUPPORTED_FORMAT for parts that no layer can hold together.
// Threads Pure functions.
#ifndef GEMMD_CORE_CHECKPOINT_COMPOSITE_H_
#define GEMMD_CORE_CHECKPOINT_COMPOSITE_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/quant/rank_slice.h"
#include "core/quant/standard_tensor.h"

namespace gemmd {

// Per expert (one for a dense layer, or where the parts are stacks) the modules whose rows follow each other.
using PartNames = std::vector<std::vector<std::string>>;

// The parts of `module`, which has no tensors of its own. `index` maps names of tensors to files.
// nullopt: nothing in the checkpoint can be its parts.
absl::StatusOr<std::optional<PartNames>> FindParts(const std::map<std::string, std::string>& index,
                                                   const std::string& module);

// Whether each part holds all experts: experts.gate_up_proj of experts.gate_proj and experts.up_proj.
bool AreStacks(const PartNames& parts);

// Which of `parts` the slice `experts` reads: its experts, or all where the parts are stacks.
absl::StatusOr<Range> PartsOf(const AxisSlice& experts, const PartNames& parts);

// What layers are but for their bytes, by module.
using LayerFacts = std::map<std::string, StandardTensor>;

// What is wrong with a part of `module` whose K is not that of the first: all of them see the same x.
absl::Status CheckSameK(const std::string& module, const std::string& first, int64_t k,
                        const std::string& part, int64_t got);
// The same of N, where `module` is joined of gate and up, which are multiplied element by element.
absl::Status CheckSameN(const std::string& module, const std::string& first, int64_t n,
                        const std::string& part, int64_t got);
// What is wrong with expert number `expert` of `module` whose size is not that of the first.
absl::Status CheckSameSize(const std::string& module, const LayerShape& first, int64_t expert,
                           const LayerShape& got);
// UNSUPPORTED_FORMAT: `status` (PARTS_DIFFER) says why the parts of `module` cannot be one layer; `names` are what it
// numbers.
absl::Status CannotJoin(const std::string& module, const absl::Status& status,
                        const std::vector<std::string>& names = {});

// What Checkpoint::ReadLayer would say of `module`, as far as the facts about its parts tell. OK where those of a
// part are not among `facts`.
absl::Status CheckParts(const std::string& module, const PartNames& parts, const LayerFacts& facts);

// The rows that a fused module of `n` rows with tensors of its own has of each part, for a slice by rank:
// half each of gate and up. Empty: the module is not fused. InvalidArgument MISSING_FIELD where the name
// promises parts (qkv_proj) and their sizes are not known.
absl::StatusOr<std::vector<RowPart>> FusedRowParts(const std::string& module, int64_t n);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_COMPOSITE_H_
