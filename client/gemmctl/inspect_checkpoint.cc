#include "client/gemmctl/inspect_checkpoint.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/checkpoint_files.h"
#include "core/checkpoint/composite.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/model_plan.h"
#include "core/checkpoint/reading_notes.h"
#include "core/checkpoint/unread_notes.h"
#include "core/quant/not_finite.h"
#include "kernels/base/status.h"

namespace gemmd::gemmctl {
namespace {

// Whoever runs this tool may read what the system lets them read.
const std::vector<std::filesystem::path>& AnyRoot() {
  static const auto* const kRoots = new std::vector<std::filesystem::path>{"/"};
  return *kRoots;
}

// The text between `before` and `after`; empty where they are not.
std::string Between(const std::string& text, const std::string& before, const std::string& after) {
  const size_t at = text.find(before);
  if (at == std::string::npos) return "";
  const size_t begin = at + before.size();
  const size_t end = text.find(after, begin);
  return end == std::string::npos ? "" : text.substr(begin, end - begin);
}

// "FILE: module M: tensor T: ...", as core/checkpoint writes its messages; parts may be missing.
Problem ProblemOf(const absl::Status& status, const std::string& module) {
  Problem problem{
      .module = module, .reason = ReasonOf(status), .message = std::string(status.message())};
  if (problem.reason.empty()) problem.reason = absl::StatusCodeToString(status.code());
  const std::string first = problem.message.substr(0, problem.message.find(": "));
  std::string file = std::filesystem::path(first).filename().string();
  file = file.substr(0, file.find(' '));                 // "config.json and hf_quant_config.json"
  if (file.find('.') != std::string::npos) problem.file = file;
  problem.tensor = Between(problem.message, ": tensor ", ": ");
  return problem;
}

std::string TextField(const Json& config, const char* name) {
  const Json* field = FindField(config, {name});
  return field != nullptr && field->is_string() ? field->get<std::string>() : "";
}

std::string ExporterOf(const Json& config) {
  if (config.is_null()) return "unquantized";
  for (const char* name : {"format", "checkpoint_format", "packing_format", "quant_algo"}) {
    const std::string detail = TextField(config, name);
    if (!detail.empty()) return absl::StrCat(TextField(config, "quant_method"), " (", detail, ")");
  }
  return TextField(config, "quant_method");
}

// A file that cannot be read is one problem, however many modules lie in it.
struct BrokenShard {
  size_t problem;
  std::string message;
  uint64_t modules = 0;  // that cannot be read for it
  std::string first_module;
};
using BrokenShards = std::map<std::string, BrokenShard>;  // by name

// Counts the tensors that the index names, and finds those that no file holds.
BrokenShards InspectFiles(const CheckpointFiles& files, CheckpointReport& report) {
  std::set<std::string> shards;
  BrokenShards broken;
  for (const auto& [name, shard] : files.index()) {
    shards.insert(shard);
    if (broken.count(shard) != 0) continue;
    const absl::StatusOr<const SafetensorsFile*> file = files.Shard(shard);
    if (!file.ok()) {
      report.problems.push_back(ProblemOf(file.status(), ""));
      report.problems.back().file = shard;
      broken[shard] = {report.problems.size() - 1, report.problems.back().message};
      continue;
    }
    const TensorInfo* info = (*file)->Find(name);
    if (info == nullptr) {
      report.problems.push_back(
          {.file = shard,
           .tensor = name,
           .reason = "BAD_CHECKPOINT",
           .message = absl::StrCat((*file)->name(), ": tensor ", name,
                                   ": expected by the index, the file holds no such tensor")});
      continue;
    }
    ++report.tensors;
    report.tensor_bytes += info->bytes;
  }
  report.files = shards.size() + files.hidden_files().size();
  return broken;
}

// The shard that `status` is about, or nullptr.
BrokenShard* ShardOf(const absl::Status& status, BrokenShards& broken) {
  for (auto& [name, shard] : broken) {
    if (absl::EndsWith(status.message(), shard.message)) return &shard;
  }
  return nullptr;
}

absl::StatusOr<ModuleReport> InspectModule(const Checkpoint& checkpoint, const std::string& module,
                                           const QuantizeOnRead* quantize, const ReadingOptions& reading) {
  ModuleReport report{.module = module};
  const ProgressFunction count = [&report](uint64_t, uint64_t total) {
    report.stored_bytes = total;
    return true;
  };
  GEMMD_ASSIGN_OR_RETURN(CheckpointLayer layer, checkpoint.ReadLayer(module, count, {}, quantize, reading));
  report.exporter = layer.format;
  report.quantized = layer.quantized;
  report.layer_bytes = static_cast<uint64_t>(layer.tensor.total_bytes());
  report.not_finite_weights = CountNotFinite(layer.tensor);
  report.devices = DevicesFor(layer.tensor);
  GEMMD_ASSIGN_OR_RETURN(const std::vector<TensorSize> sizes, TensorSizes(layer.tensor));
  for (const TensorSize& size : sizes) Buffer().swap(layer.tensor.*size.buffer);
  report.facts = std::move(layer.tensor);
  return report;
}

// Faults of a config are one problem each, however many modules they concern; so is that the model is quantized.
class ConfigFaults {
 public:
  // Whether `status` is about a config, and told of another module already.
  bool Repeats(const CheckpointFiles& files, const absl::Status& status, size_t problem) {
    const absl::string_view message = status.message();
    const bool of_config = absl::StartsWith(message, absl::StrCat(files.config_file(), ": module "));
    if (!of_config && ReasonOf(status) != "ALREADY_QUANTIZED") return false;
    const auto [fault, is_new] = faults_.emplace(FaultOf(ReasonOf(status), message), Fault{problem, 0});
    if (!is_new) ++fault->second.more_modules;
    return !is_new;
  }

  void TellModules(std::vector<Problem>& problems) const {
    for (const auto& [text, fault] : faults_) {
      if (fault.more_modules == 0) continue;
      absl::StrAppend(&problems[fault.problem].message, "; and so for ", fault.more_modules,
                      fault.more_modules == 1 ? " more module" : " more modules");
    }
  }

 private:
  struct Fault {
    size_t problem;
    uint64_t more_modules;
  };
  std::map<std::string, Fault> faults_;  // by what is wrong
};

// Whether what is wrong with a module is told already: the file lacks a tensor, or both stacks of one layer's experts
// are not of the config's count.
bool IsTold(const Problem& problem, const std::vector<Problem>& told) {
  return std::any_of(told.begin(), told.end(), [&problem](const Problem& other) {
    const bool same_tensor = !problem.tensor.empty() && problem.tensor == other.tensor;
    return problem.message == other.message ||
           (same_tensor && problem.file == other.file && other.module.empty());
  });
}

void InspectModules(const Checkpoint& checkpoint, const InspectProgress& progress,
                    const QuantizeOnRead* quantize, const ReadingOptions& reading, BrokenShards& broken,
                    CheckpointReport& report) {
  const absl::StatusOr<std::vector<std::string>> modules = ListCandidates(checkpoint);
  if (!modules.ok()) {
    report.problems.push_back(ProblemOf(modules.status(), ""));
    return;
  }
  report.quantized_modules = modules->size();
  ConfigFaults faults;
  for (const std::string& module : *modules) {
    if (progress) progress(report.modules.size(), modules->size(), module);
    absl::StatusOr<ModuleReport> read = InspectModule(checkpoint, module, quantize, reading);
    if (read.ok()) {
      report.modules.push_back(*std::move(read));
    } else if (BrokenShard* const shard = ShardOf(read.status(), broken)) {
      if (shard->modules++ == 0) shard->first_module = module;
    } else if (!faults.Repeats(checkpoint.files(), read.status(), report.problems.size())) {
      Problem problem = ProblemOf(read.status(), module);
      if (!IsTold(problem, report.problems)) report.problems.push_back(std::move(problem));
    }
  }
  faults.TellModules(report.problems);
}

// Of a module that is joined of others: whether they fit, by what their own reports say.
absl::Status CheckJoined(const CheckpointFiles& files, const std::string& module,
                         const LayerFacts& facts) {
  if (facts.count(module) > 0) return absl::OkStatus();
  GEMMD_ASSIGN_OR_RETURN(const std::optional<PartNames> parts, FindParts(files.index(), module));
  return parts ? CheckParts(module, *parts, facts) : absl::OkStatus();
}

LayerFacts FactsOf(const CheckpointReport& report) {
  LayerFacts facts;
  for (const ModuleReport& module : report.modules) facts.emplace(module.module, module.facts);
  return facts;
}

// What is wrong with the model as a whole.
std::vector<absl::Status> ModelProblems(const Checkpoint& checkpoint, CheckpointReport& report) {
  absl::StatusOr<ModelPlan> plan = PlanDamagedModel(checkpoint, {.fuse = true});
  if (!plan.ok()) {
    report.notes = NotesOfUnread(checkpoint.files());
    return {plan.status()};
  }
  report.notes = std::move(plan->notes);
  std::vector<absl::Status> problems = std::move(plan->problems);
  for (const HiddenFile& file : plan->hidden_files) problems.push_back(file.status);
  const LayerFacts facts = FactsOf(report);
  for (const PlannedModule& planned : plan->modules) {
    problems.push_back(CheckJoined(checkpoint.files(), planned.module, facts));
  }
  return problems;
}

// What no module shows by itself: experts, parts and layers that are missing, parts that do not fit, or that there is
// no module.
void InspectModel(const Checkpoint& checkpoint, BrokenShards& broken, CheckpointReport& report) {
  std::set<std::string> told;
  for (const Problem& problem : report.problems) told.insert(problem.message);
  for (const absl::Status& status : ModelProblems(checkpoint, report)) {
    if (status.ok() || ShardOf(status, broken) != nullptr) continue;
    const std::string message(status.message());
    if (!told.insert(message).second) continue;
    report.problems.push_back(ProblemOf(status, Between(": " + message, ": module ", ": ")));
  }
}

void TellModulesOf(const BrokenShards& broken, CheckpointReport& report) {
  for (const auto& [name, shard] : broken) {
    if (shard.modules == 0) continue;
    absl::StrAppend(&report.problems[shard.problem].message, "; ", shard.modules,
                    shard.modules == 1 ? " module needs it, " : " modules need it, such as ",
                    shard.first_module);
  }
}

// Of a model without an index: what is in two files and is no module's that a problem tells of.
void NoteTwice(const CheckpointFiles& files, CheckpointReport& report) {
  std::vector<std::string> twice;
  for (const auto& [tensor, file] : files.index()) {
    const std::string* const other = files.OtherFileOf(tensor);
    if (other == nullptr) continue;
    const bool is_told = std::any_of(report.problems.begin(), report.problems.end(),
                                     [&tensor = tensor](const Problem& problem) { return problem.tensor == tensor; });
    if (!is_told) twice.push_back(absl::StrCat(tensor, " (", file, ", ", *other, ")"));
  }
  if (!twice.empty()) report.notes.push_back(absl::StrCat("in two files: ", SomeOf(twice)));
}

// What other programs take otherwise than this one.
void NoteReadings(const Checkpoint& checkpoint, const ReadingOptions& reading, CheckpointReport& report) {
  std::vector<PlannedModule> modules;
  for (const ModuleReport& module : report.modules) modules.push_back({.module = module.module, .slice = {}});
  for (std::string& note : ReadingNotes(checkpoint, modules, reading)) report.notes.push_back(std::move(note));
}

// Groups need not divide K, but whoever thought that they do should know.
void NoteShortGroups(int64_t group, CheckpointReport& report) {
  std::map<int64_t, std::pair<std::string, uint64_t>> modules;  // by K: the first, and how many
  for (const ModuleReport& module : report.modules) {
    const int64_t k = module.facts.shape.k;
    if (group == 0 || k % group == 0) continue;
    auto& [first, count] = modules[k];
    if (count++ == 0) first = module.module;
  }
  for (const auto& [k, module] : modules) {
    const auto& [first, count] = module;
    report.notes.push_back(absl::StrCat("K = ", k, " is no multiple of ", group,
                                        ": the last scale of each row is for ", k % group, " columns (", first,
                                        count > 1 ? absl::StrCat(" and ", count - 1, " more") : "", ")"));
  }
}

}  // namespace

absl::StatusOr<CheckpointReport> InspectCheckpoint(const std::string& directory, const InspectProgress& progress,
                                                   const std::optional<QuantizeTarget>& quantize,
                                                   const ReadingOptions& reading) {
  CheckpointReport report{.directory = directory};
  const auto checkpoint = Checkpoint::Open(directory, AnyRoot());
  if (ReasonOf(checkpoint.status()) == "CHECKPOINT_NOT_FOUND") return checkpoint.status();
  if (!checkpoint.ok()) {
    report.problems.push_back(ProblemOf(checkpoint.status(), ""));
    return report;
  }
  report.exporter = ExporterOf((*checkpoint)->files().quantization_config());
  BrokenShards broken = InspectFiles((*checkpoint)->files(), report);
  std::optional<QuantizeOnRead> on_read;
  if (quantize.has_value()) on_read = QuantizeOnRead{*quantize, nullptr, nullptr};
  InspectModules(**checkpoint, progress, on_read.has_value() ? &*on_read : nullptr, reading, broken, report);
  InspectModel(**checkpoint, broken, report);
  TellModulesOf(broken, report);
  NoteTwice((*checkpoint)->files(), report);
  NoteReadings(**checkpoint, reading, report);
  if (quantize.has_value()) NoteShortGroups(quantize->spec.scale_block_k, report);
  return report;
}

}  // namespace gemmd::gemmctl
