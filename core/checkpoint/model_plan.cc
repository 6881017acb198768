#include "core/checkpoint/model_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/checkpoint/checkpoint_files.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/model_parts.h"
#include "core/checkpoint/module_rules.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

using Names = std::vector<std::string>;

// ---- selection ----

bool IsPattern(const std::string& text) { return text.find_first_of("*?") != std::string::npos; }

bool MatchesAny(const Names& patterns, const std::string& module) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return ShellMatch(pattern, module);
  });
}

// Those of `patterns` that no module matches.
Names Unmatched(const Names& patterns, const Names& modules) {
  Names unmatched;
  for (const std::string& pattern : patterns) {
    const bool matches = std::any_of(modules.begin(), modules.end(), [&](const std::string& module) {
      return ShellMatch(pattern, module);
    });
    if (!matches) unmatched.push_back(pattern);
  }
  return unmatched;
}

// `candidates` that `patterns` choose. A name that is no candidate may be one of parts: it stays.
absl::StatusOr<Names> Chosen(const Names& patterns, const Names& candidates) {
  if (patterns.empty()) return candidates;
  std::set<std::string> chosen;
  for (const std::string& pattern : patterns) {
    const size_t before = chosen.size();
    bool found = !IsPattern(pattern);
    if (found) chosen.insert(pattern);
    for (const std::string& module : candidates) {
      if (!ShellMatch(pattern, module)) continue;
      found = true;
      chosen.insert(module);
    }
    if (found || chosen.size() > before) continue;
    return Error(absl::StatusCode::kNotFound, "MODULE_NOT_FOUND",
                 absl::StrCat("no module of the checkpoint matches \"", pattern, "\""));
  }
  return Names(chosen.begin(), chosen.end());
}

// Modules with codes of 8 bits in .weight that lack what Checkpoint::ListModules goes by, their scales: one
// that is damaged so must fail, not go missing.
Names Unmarked(const CheckpointFiles& files, const Names& listed) {
  Names found;
  for (const auto& [name, shard] : files.index()) {
    absl::string_view module = name;
    if (!absl::ConsumeSuffix(&module, ".weight")) continue;
    if (std::binary_search(listed.begin(), listed.end(), module)) continue;
    const auto file = files.Shard(shard);
    const TensorInfo* info = file.ok() ? (*file)->Find(name) : nullptr;
    if (info == nullptr || info->shape.size() < 2) continue;
    if (info->dtype == "U8" || info->dtype == "I8" || absl::StartsWith(info->dtype, "F8_")) {
      found.emplace_back(module);
    }
  }
  return found;
}

// Whether index and files agree: a tensor that is in the index alone would leave its module out, and of one in
// two files nobody knows which is meant.
absl::Status CheckIndex(const CheckpointFiles& files) {
  const std::map<std::string, std::string>& index = files.index();
  std::set<std::string> shards;
  for (const auto& [name, shard] : index) {
    const auto file = files.Shard(shard);
    if (!file.ok()) continue;  // so is what lies in it
    if ((*file)->Find(name) == nullptr) {
      return BadCheckpoint(absl::StrCat(shard, ": tensor ", name,
                                        ": expected by the index, the file holds no such tensor"));
    }
    shards.insert(shard);
  }
  for (const std::string& shard : shards) {
    GEMMD_ASSIGN_OR_RETURN(const SafetensorsFile* const file, files.Shard(shard));
    for (const auto& [name, info] : file->tensors()) {
      const auto indexed = index.find(name);
      if (indexed == index.end() || indexed->second == shard) continue;
      return BadCheckpoint(absl::StrCat(shard, ": tensor ", name, ": expected in ", indexed->second,
                                        " only, by the index"));
    }
  }
  return absl::OkStatus();
}

// All modules that a call may choose from, sorted.
absl::StatusOr<Names> Candidates(const Checkpoint& checkpoint) {
  GEMMD_ASSIGN_OR_RETURN(Names all, checkpoint.ListModules());
  if (checkpoint.files().quantization_config().is_null()) return all;
  for (std::string& module : Unmarked(checkpoint.files(), all)) all.push_back(std::move(module));
  std::sort(all.begin(), all.end());
  return all;
}

// ---- slices ----

// The axis of a module that tensor parallelism cuts.
enum class Cut { kNone, kRows, kColumns };

Cut CutOf(const ModelSelection& selection, const std::string& module) {
  if (!selection.row_modules.empty() || !selection.column_modules.empty()) {
    if (MatchesAny(selection.row_modules, module)) return Cut::kRows;
    return MatchesAny(selection.column_modules, module) ? Cut::kColumns : Cut::kNone;
  }
  static const auto* const kRows = new std::set<std::string>{
      "q_proj", "k_proj", "v_proj", "qkv_proj", "gate_proj", "up_proj",    "gate_up_proj",
      "w1",     "w3",     "w13",    "q_b_proj", "kv_b_proj", "mlp1_weight"};
  static const auto* const kColumns =
      new std::set<std::string>{"o_proj", "out_proj", "down_proj", "w2", "mlp2_weight"};
  const std::string name = SplitModule(module).second;
  if (kRows->count(name) > 0) return Cut::kRows;
  return kColumns->count(name) > 0 ? Cut::kColumns : Cut::kNone;
}

// Whether the module is a layer of several experts, by its name.
bool IsStack(const std::string& module) {
  const auto [prefix, name] = SplitModule(module);
  return absl::EndsWith(prefix, "experts.") || name == "mlp1_weight" || name == "mlp2_weight";
}

SliceRequest SliceOf(const ModelSelection& selection, const std::string& module) {
  SliceRequest slice;
  if (IsStack(module)) slice.experts = selection.experts;
  const Cut cut = CutOf(selection, module);
  if (cut == Cut::kRows) slice.rows = selection.tensor;
  if (cut == Cut::kColumns) slice.columns = selection.tensor;
  return slice;
}

// Without the modules of single experts that belong to other ranks.
absl::StatusOr<Names> OwnExperts(const AxisSlice& experts, const Names& all, const Names& chosen) {
  if (experts.whole()) return chosen;
  std::map<std::string, int64_t> counts;
  for (const std::string& module : all) {
    const auto expert = ExpertOf(SplitModule(module).first);
    if (!expert) continue;
    int64_t& count = counts[expert->first];
    count = std::max(count, expert->second + 1);
  }
  Names own;
  for (const std::string& module : chosen) {
    const auto expert = ExpertOf(SplitModule(module).first);
    if (expert) {
      GEMMD_ASSIGN_OR_RETURN(const Range range,
                             PartOf("experts", experts, counts[expert->first]));
      if (expert->second < range.begin || expert->second >= range.end) continue;
    }
    own.push_back(module);
  }
  return own;
}

// What is said about parts that `planned` holds because the whole could not be joined.
absl::StatusOr<Names> PartsLeftSingle(const Checkpoint& checkpoint, const ModelSelection& selection,
                                      const Names& all, const std::vector<PlannedModule>& planned) {
  Names chosen;
  for (const PlannedModule& module : planned) chosen.push_back(module.module);
  std::set<std::string> named;
  for (const std::string& pattern : selection.modules) {
    if (!IsPattern(pattern)) named.insert(pattern);
  }
  return CheckGroups(checkpoint.files(), all, chosen, named);
}

// What is said of a checkpoint without any.
std::string NoModules(const CheckpointFiles& files) {
  const bool quantized = !files.quantization_config().is_null();
  return absl::StrCat(
      files.config_file(),
      quantized ? ": it names a quantization, and none" : ": it names no quantization, and none",
      " of the files' ", files.index().size(), " tensors belongs to a ",
      quantized ? "quantized module" : "linear (a .weight [N, K])");
}

}  // namespace

absl::StatusOr<ModelPlan> PlanModel(const Checkpoint& checkpoint, const ModelSelection& selection) {
  GEMMD_RETURN_IF_ERROR(CheckIndex(checkpoint.files()));
  GEMMD_ASSIGN_OR_RETURN(const Names all, Candidates(checkpoint));
  // A rank's share of experts follows from how many there are.
  if (selection.fuse || selection.experts.size > 1) {
    GEMMD_RETURN_IF_ERROR(CheckStacks(checkpoint.files(), all));
  }
  GEMMD_ASSIGN_OR_RETURN(const Names chosen,
                         Chosen(selection.modules, selection.fuse ? FuseModules(all) : all));
  GEMMD_ASSIGN_OR_RETURN(const Names own, OwnExperts(selection.experts, all, chosen));
  ModelPlan plan{{}, Unmatched(selection.exclude, own), {}};
  for (const std::string& module : own) {
    if (MatchesAny(selection.exclude, module)) continue;
    PlannedModule planned{module, SliceOf(selection, module), 0};
    planned.bytes = checkpoint.BytesOf(module, planned.slice);
    plan.modules.push_back(std::move(planned));
  }
  if (selection.fuse) {
    GEMMD_ASSIGN_OR_RETURN(plan.notes, PartsLeftSingle(checkpoint, selection, all, plan.modules));
  }
  if (!plan.modules.empty()) return plan;
  return Error(absl::StatusCode::kNotFound, "MODULE_NOT_FOUND",
               all.empty()
                   ? NoModules(checkpoint.files())
                   : absl::StrCat("none of the checkpoint's ", all.size(), " modules is chosen"));
}

}  // namespace gemmd
