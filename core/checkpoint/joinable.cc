#include "core/checkpoint/joinable.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/checkpoint/checkpoint_files.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/module_names.h"
#include "core/checkpoint/module_rules.h"
#include "core/checkpoint/module_tensors.h"

namespace gemmd {
namespace {

using Names = std::vector<std::string>;

// What a part shows without its numbers being read.
struct PartOutline {
  std::string types;  // by key
  std::string rules;  // what the config says
  std::map<std::string, TensorInfo> tensors;
  std::optional<Buffer> order;  // g_idx
};

int64_t ElementsOf(const TensorInfo& info) {
  int64_t count = 1;
  for (const int64_t extent : info.shape) {
    if (__builtin_mul_overflow(count, extent, &count)) return 0;
  }
  return count;
}

// The config's text without what it says of this module's name alone.
std::string SharedRulesOf(const Json& config, const std::string& module) {
  absl::StatusOr<std::string> rules = RulesOf(config, module);
  if (!rules.ok()) return "";
  const size_t name = rules->find(module + "\n");
  return name == std::string::npos ? *std::move(rules) : rules->substr(0, name);
}

std::optional<PartOutline> OutlineOf(const CheckpointFiles& files, const std::string& part, bool with_rules) {
  absl::StatusOr<ModuleTensors> tensors = ModuleTensors::Open(files, part, nullptr);
  if (!tensors.ok()) return std::nullopt;
  PartOutline outline;
  outline.tensors = tensors->Infos();
  for (const auto& [key, info] : outline.tensors) absl::StrAppend(&outline.types, key, " ", info.dtype, "\n");
  if (with_rules) outline.rules = SharedRulesOf(files.quantization_config(), part);
  for (const char* key : {".g_idx", ".weight_g_idx"}) {
    const TensorInfo* const info = tensors->Find(key);
    if (info == nullptr) continue;
    absl::StatusOr<TensorData> index = tensors->Read(key, {"I32"}, {info->shape});
    if (index.ok()) outline.order = std::move(index->bytes);
  }
  return outline;
}

// a / b in lowest terms.
std::pair<int64_t, int64_t> Proportion(const TensorInfo& a, const TensorInfo& b) {
  const int64_t sizes[] = {ElementsOf(a), ElementsOf(b)};
  const int64_t divisor = std::max(std::gcd(sizes[0], sizes[1]), int64_t{1});
  return {sizes[0] / divisor, sizes[1] / divisor};
}

// Whether the sizes of two parts with the same keys differ as their N do: all matrices in one proportion, and single
// numbers and vectors in that or none.
bool AreInProportion(const PartOutline& a, const PartOutline& b) {
  const std::pair<int64_t, int64_t> same{1, 1};
  std::set<std::pair<int64_t, int64_t>> matrices;
  std::set<std::pair<int64_t, int64_t>> all = {same};
  for (const auto& [key, info] : a.tensors) {
    const std::pair<int64_t, int64_t> proportion = Proportion(info, b.tensors.at(key));
    all.insert(proportion);
    if (info.shape.size() > 1 && ElementsOf(info) > 1) matrices.insert(proportion);
  }
  if (matrices.size() > 1) return false;
  matrices.insert(same);
  return all == matrices || all.size() == 1;
}

bool LookAlike(const PartOutline& a, const PartOutline& b) {
  return a.types == b.types && AreInProportion(a, b);
}

int32_t GroupAt(const Buffer& order, size_t column) {
  int32_t group;
  std::memcpy(&group, order.data() + column * sizeof(group), sizeof(group));
  return group;
}

using Outlines = std::vector<PartOutline>;

// Of the parts of one expert; nullopt: one cannot be read.
std::optional<Outlines> OutlinesOf(const CheckpointFiles& files, const Names& parts, bool with_rules) {
  Outlines outlines;
  for (const std::string& part : parts) {
    std::optional<PartOutline> outline = OutlineOf(files, part, with_rules);
    if (!outline) return std::nullopt;
    outlines.push_back(*std::move(outline));
  }
  return outlines;
}

// Two experts, part by part.
bool AreAlike(const Outlines& a, const Outlines& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), LookAlike);
}

// All parts of one expert, also in what the config says.
bool AreRowsOfOne(const Outlines& parts) {
  return std::all_of(parts.begin(), parts.end(), [&](const PartOutline& part) {
    return LookAlike(parts.front(), part) && part.rules == parts.front().rules;
  });
}

// Why the parts of one expert are no layer together; empty: their columns have the same order.
std::string WhyOrdersDiffer(const Names& parts, const Outlines& outlines) {
  const std::optional<Buffer>& first = outlines.front().order;
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::optional<Buffer>& other = outlines[i].order;
    if (!first || !other || *first == *other || first->size() != other->size()) continue;
    size_t column = 0;
    while (GroupAt(*first, column) == GroupAt(*other, column)) ++column;
    return absl::StrCat("its parts cannot be one layer: group of column ", column, " (g_idx): ", SplitModule(parts[i]).second,
                        " has ", GroupAt(*other, column), ", ", SplitModule(parts[0]).second, " has ",
                        GroupAt(*first, column));
  }
  return "";
}

std::string WithoutNumbers(const std::string& module) {
  return RoleOf(SplitModule(module).first) + SplitModule(module).second;
}

// What is said of modules, and of which.
struct Reason {
  std::string text;
  Names modules;
};
using Reasons = std::map<std::string, Reason>;  // by the text without its numbers

void AddReason(const std::string& module, const std::string& text, Reasons& reasons) {
  std::string key = text;
  key.erase(std::remove_if(key.begin(), key.end(), [](unsigned char c) { return absl::ascii_isdigit(c); }), key.end());
  Reason& reason = reasons[key];
  if (reason.modules.empty()) reason.text = text;
  reason.modules.push_back(module);
}

Names NotesOf(const Reasons& reasons) {
  Names notes;
  for (const auto& [key, reason] : reasons) {
    const size_t more = reason.modules.size() - 1;
    notes.push_back(absl::StrCat("module ", reason.modules.front(), more == 0 ? "" : absl::StrCat(" and ", more, " more"),
                                 ": left in its parts: ", reason.text));
  }
  return notes;
}

}  // namespace

std::string JoinCheck::Read(const std::string& module, bool all_experts) {
  SliceRequest slice;
  if (!all_experts) slice.experts.range = {0, 1};
  const absl::Status status = checkpoint_.ReadLayer(module, nullptr, slice).status();
  const bool is_unlike = ReasonOf(status) == "UNSUPPORTED_FORMAT" &&
                         absl::StrContains(status.message(), absl::StrCat("module ", module, ": its "));
  if (!is_unlike) return "";
  const std::string prefix = SplitModule(module).first;
  const std::string text = WithoutModule(status.message());
  return prefix.empty() ? text : absl::StrReplaceAll(text, {{prefix, ""}});
}

std::string JoinCheck::WhyApart(const std::string& module, const PartNames& parts) {
  Outlines first;  // of the first expert's parts
  Outlines others;
  for (const Names& rows : parts) {
    std::optional<Outlines> outlines = OutlinesOf(checkpoint_.files(), rows, first.empty());
    if (!outlines) return "";
    const std::string why = WhyOrdersDiffer(rows, *outlines);
    if (!why.empty()) return why;
    for (PartOutline& outline : *outlines) outline.order.reset();
    if (first.empty()) {
      first = *std::move(outlines);
    } else if (others.empty() && !AreAlike(first, *outlines)) {
      others = *std::move(outlines);
    }
  }
  const bool experts_alike = others.empty();
  if (experts_alike && AreRowsOfOne(first)) return "";
  std::string kind = WithoutNumbers(module);
  for (const Outlines* const outlines : {&first, &others}) {
    for (const PartOutline& outline : *outlines) absl::StrAppend(&kind, "\n", outline.types, outline.rules);
  }
  const auto [known, is_new] = read_.emplace(kind, "");
  if (is_new) known->second = Read(module, !experts_alike);
  return known->second;
}

Names SplitUnlike(const Checkpoint& checkpoint, const Names& stored, const Names& modules, Names& notes) {
  const std::set<std::string> single(stored.begin(), stored.end());
  JoinCheck check(checkpoint);
  std::set<std::string> out;
  Reasons reasons;
  for (const std::string& module : modules) {
    out.insert(module);
    if (single.count(module) > 0) continue;
    const auto parts = FindParts(checkpoint.files().index(), module);
    if (!parts.ok() || !*parts) continue;
    const std::string why = check.WhyApart(module, **parts);
    if (why.empty()) continue;
    out.erase(module);
    for (const Names& rows : **parts) out.insert(rows.begin(), rows.end());
    AddReason(module, why, reasons);
  }
  const Names more = NotesOf(reasons);
  notes.insert(notes.end(), more.begin(), more.end());
  return Names(out.begin(), out.end());
}

}  // namespace gemmd
