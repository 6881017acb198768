#include "core/checkpoint/model_plan.h"

#include <algorithm>
#include <iterator>
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
#include "core/checkpoint/joinable.h"
#include "core/checkpoint/model_blocks.h"
#include "core/checkpoint/model_layers.h"
#include "core/checkpoint/model_parts.h"
#include "core/checkpoint/module_names.h"
#include "core/checkpoint/module_rules.h"
#include "core/checkpoint/plain_modules.h"
#include "core/checkpoint/unread_notes.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

using Names = std::vector<std::string>;
using Problems = std::vector<absl::Status>;

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

// The module whose codes of 8 bits `tensor` would be: the one before ".weight", or a stack of experts itself.
std::optional<std::string> ModuleOfCodes(const std::string& tensor, const TensorInfo& info) {
  const bool is_code =
      info.dtype == "U8" || info.dtype == "I8" || absl::StartsWith(info.dtype, "F8_");
  if (!is_code || info.shape.size() < 2) return std::nullopt;
  absl::string_view module = tensor;
  if (absl::ConsumeSuffix(&module, ".weight")) return std::string(module);
  static const auto* const kStacks =
      new std::set<std::string>{"gate_up_proj", "down_proj", "gate_proj", "up_proj"};
  const auto [prefix, name] = SplitModule(tensor);
  const bool is_stack = absl::EndsWith(prefix, "experts.") && kStacks->count(name) > 0;
  return is_stack ? std::optional(tensor) : std::nullopt;
}

// Modules with codes of 8 bits that lack what Checkpoint::ListModules goes by, their scales: one that is damaged so
// must fail, not go missing.
Names Unmarked(const CheckpointFiles& files, const Names& listed) {
  const auto shards = files.Shards();
  Names found;
  for (const auto& [name, shard] : files.index()) {
    const SafetensorsFile* const file = shards.at(shard);
    const TensorInfo* const info = file == nullptr ? nullptr : file->Find(name);
    if (info == nullptr) continue;
    std::optional<std::string> module = ModuleOfCodes(name, *info);
    if (!module || std::binary_search(listed.begin(), listed.end(), *module)) continue;
    found.push_back(*std::move(module));
  }
  return found;
}

// Where index and files disagree: a tensor that is in the index alone would leave its module out, and of one in two
// files nobody knows which is meant. Without an index the latter is found when its module is read.
Problems CheckIndex(const CheckpointFiles& files) {
  const std::map<std::string, std::string>& index = files.index();
  const auto shards = files.Shards();
  Problems problems;
  for (const auto& [name, shard] : index) {
    const SafetensorsFile* const file = shards.at(shard);
    if (file == nullptr || file->Find(name) != nullptr) continue;  // no file: so is what lies in it
    problems.push_back(BadCheckpoint(absl::StrCat(
        file->name(), ": tensor ", name, ": expected by the index, the file holds no such tensor")));
  }
  for (const auto& [shard, file] : shards) {
    if (file == nullptr || !files.has_index()) continue;
    for (const auto& [name, info] : file->tensors()) {
      const auto indexed = index.find(name);
      if (indexed == index.end() || indexed->second == shard) continue;
      problems.push_back(BadCheckpoint(absl::StrCat(file->name(), ": tensor ", name,
                                                    ": expected in ", indexed->second,
                                                    " only, by the index")));
    }
  }
  return problems;
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
      "q_proj", "k_proj", "v_proj", "qkv_proj", "gate_proj", "up_proj",     "gate_up_proj",
      "w1",     "w3",     "w13",    "q_b_proj", "kv_b_proj", "mlp1_weight", "input_linear"};
  static const auto* const kColumns = new std::set<std::string>{
      "o_proj", "out_proj", "down_proj", "w2", "mlp2_weight", "output_linear"};
  const std::string name = SplitModule(module).second;
  if (kRows->count(name) > 0) return Cut::kRows;
  return kColumns->count(name) > 0 ? Cut::kColumns : Cut::kNone;
}

SliceRequest SliceOf(const ModelSelection& selection, const std::string& module) {
  SliceRequest slice;
  if (IsStackName(module)) slice.experts = selection.experts;
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

// ---- what is missing ----

void Append(Problems more, Problems& problems) {
  problems.insert(problems.end(), std::make_move_iterator(more.begin()),
                  std::make_move_iterator(more.end()));
}

// Parts that `plan` holds because the whole could not be joined.
OpenGroups PartsLeftSingle(const Checkpoint& checkpoint, const ModelSelection& selection,
                           const Names& all, const ModelPlan& plan) {
  Names chosen;
  for (const PlannedModule& module : plan.modules) chosen.push_back(module.module);
  std::set<std::string> named;
  for (const std::string& pattern : selection.modules) {
    if (!IsPattern(pattern)) named.insert(pattern);
  }
  return CheckGroups(checkpoint.files(), all, chosen, named);
}

// Whether a pattern asks for `module`, alone or joined, and none leaves it out.
bool IsWanted(const ModelSelection& selection, const std::string& module) {
  const Names names = JoinedNames(module);
  const auto matches = [&names](const std::string& pattern) {
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return ShellMatch(pattern, name); });
  };
  if (std::any_of(selection.exclude.begin(), selection.exclude.end(), matches)) return false;
  return selection.modules.empty() ||
         std::any_of(selection.modules.begin(), selection.modules.end(),
                     [&](const std::string& text) { return IsPattern(text) && matches(text); });
}

// What the joined model lacks, beside whole experts.
void CheckModel(const Checkpoint& checkpoint, const ModelSelection& selection, const Names& all,
                ModelPlan& plan, Problems& missing) {
  OpenGroups open = PartsLeftSingle(checkpoint, selection, all, plan);
  std::move(open.notes.begin(), open.notes.end(), std::back_inserter(plan.notes));
  Append(std::move(open.problems), missing);
  const auto wanted = [&](const std::string& module) { return IsWanted(selection, module); };
  Append(CheckProjections(checkpoint.files(), all, wanted), missing);
  Append(CheckLayers(checkpoint.files(), all, wanted), missing);
  Append(CheckBlocks(checkpoint.files(), all, wanted), missing);
}

// What is said of a checkpoint without any.
std::string NoModules(const CheckpointFiles& files) {
  const bool quantized = !files.quantization_config().is_null();
  return absl::StrCat(
      files.config_file(),
      quantized ? ": it names a quantization, and none" : ": it names no quantization, and none",
      " of the files' ", files.index().size(), " tensors belongs to a ",
      quantized ? "quantized module or to a linear (a .weight [N, K])" : "linear (a .weight [N, K])");
}

// What is missing is a problem, or lies in a file that cannot be read: then it is told with that.
void Settle(const CheckpointFiles& files, Problems missing, ModelPlan& plan) {
  plan.hidden_files = files.hidden_files();
  if (plan.hidden_files.empty()) return Append(std::move(missing), plan.problems);
  if (missing.empty()) return;
  HiddenFile& file = plan.hidden_files.front();
  file.status = BadCheckpoint(absl::StrCat(
      file.status.message(), "; what is missing may be in it: ", missing.front().message(),
      missing.size() == 1 ? "" : absl::StrCat("; and ", missing.size() - 1, " more")));
}

// Fills `plan` and `missing`, also where the problems that they name make an error of the rest.
absl::Status FillPlan(const Checkpoint& checkpoint, const ModelSelection& selection,
                      ModelPlan& plan, Problems& missing) {
  plan.problems = CheckIndex(checkpoint.files());
  plan.notes = NotesOfUnread(checkpoint.files());
  GEMMD_ASSIGN_OR_RETURN(const Names all, ListCandidates(checkpoint));
  // A rank's share of experts follows from how many there are.
  if (selection.fuse || selection.experts.size > 1) {
    Append(CheckStacks(checkpoint.files(), all),
           selection.experts.size > 1 ? plan.problems : missing);
  }
  const Names candidates =
      selection.fuse ? SplitUnlike(checkpoint, all, FuseModules(all), plan.notes) : all;
  GEMMD_ASSIGN_OR_RETURN(const Names chosen, Chosen(selection.modules, candidates));
  GEMMD_ASSIGN_OR_RETURN(const Names own, OwnExperts(selection.experts, all, chosen));
  plan.unmatched_exclude = Unmatched(selection.exclude, own);
  for (const std::string& module : own) {
    if (MatchesAny(selection.exclude, module)) continue;
    PlannedModule planned{module, SliceOf(selection, module), 0};
    planned.bytes = checkpoint.BytesOf(module, planned.slice);
    plan.modules.push_back(std::move(planned));
  }
  if (selection.fuse) CheckModel(checkpoint, selection, all, plan, missing);
  if (!plan.modules.empty()) return absl::OkStatus();
  return Error(absl::StatusCode::kNotFound, "MODULE_NOT_FOUND",
               all.empty()
                   ? NoModules(checkpoint.files())
                   : absl::StrCat("none of the checkpoint's ", all.size(), " modules is chosen"));
}

}  // namespace

absl::StatusOr<Names> ListCandidates(const Checkpoint& checkpoint) {
  GEMMD_ASSIGN_OR_RETURN(Names all, checkpoint.ListModules());
  if (checkpoint.files().quantization_config().is_null()) return all;
  for (std::string& module : Unmarked(checkpoint.files(), all)) all.push_back(std::move(module));
  if (all.empty()) return ListLinears(checkpoint.files());
  std::sort(all.begin(), all.end());
  return all;
}

absl::StatusOr<ModelPlan> PlanModel(const Checkpoint& checkpoint, const ModelSelection& selection) {
  GEMMD_ASSIGN_OR_RETURN(ModelPlan plan, PlanDamagedModel(checkpoint, selection));
  if (!plan.problems.empty()) return plan.problems.front();
  return plan;
}

absl::StatusOr<ModelPlan> PlanDamagedModel(const Checkpoint& checkpoint,
                                           const ModelSelection& selection) {
  ModelPlan plan;
  Problems missing;
  const absl::Status filled = FillPlan(checkpoint, selection, plan, missing);
  Settle(checkpoint.files(), std::move(missing), plan);
  if (filled.ok() || !plan.problems.empty()) return plan;
  if (ReasonOf(filled) != "MODULE_NOT_FOUND" || plan.hidden_files.empty()) return filled;
  return BadCheckpoint(
      absl::StrCat(plan.hidden_files.front().status.message(), "; ", filled.message()));
}

}  // namespace gemmd
