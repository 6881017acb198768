#include "core/checkpoint/composite.h"

#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/module_names.h"
#include "core/quant/combine.h"

namespace gemmd {
namespace {

using Index = std::map<std::string, std::string>;
using Names = std::vector<std::string>;

constexpr int64_t kMostExperts = 1 << 16;

struct FusedName {
  const char* name;
  Names parts;
};

// w1 is gate, w3 up and w2 down (Mixtral).
const std::vector<FusedName>& FusedNames() {
  static const auto* const kNames = new std::vector<FusedName>{
      {"qkv_proj", {"q_proj", "k_proj", "v_proj"}},
      {"gate_up_proj", {"gate_proj", "up_proj"}},
      {"gate_up_proj", {"w1", "w3"}},
      {"w13", {"w1", "w3"}},
      {"w13", {"gate_proj", "up_proj"}},
      {"gate_proj", {"w1"}},
      {"up_proj", {"w3"}},
      {"down_proj", {"w2"}},
      {"w2", {"down_proj"}},
      {"fused_qkv_a_proj", {"q_a_proj", "kv_a_proj_with_mqa"}},
  };
  return *kNames;
}

bool HasModule(const Index& index, const std::string& module) {
  if (index.count(module) > 0) return true;  // a stack
  const std::string prefix = module + ".";
  const auto found = index.lower_bound(prefix);
  return found != index.end() && absl::StartsWith(found->first, prefix);
}

// "a.b.c" -> "a.b." and "c".
std::pair<std::string, std::string> Split(const std::string& module) {
  const size_t dot = module.rfind('.');
  if (dot == std::string::npos) return {"", module};
  return {module.substr(0, dot + 1), module.substr(dot + 1)};
}

Names WithPrefix(const std::string& prefix, const Names& names) {
  Names out;
  for (const std::string& name : names) out.push_back(prefix + name);
  return out;
}

// The modules whose rows make `name` below `prefix`; empty when none of them exists.
absl::StatusOr<Names> RowParts(const Index& index, const std::string& prefix,
                               const std::string& name) {
  if (HasModule(index, prefix + name)) return Names{prefix + name};
  for (const FusedName& fused : FusedNames()) {
    if (name != fused.name) continue;
    const Names parts = WithPrefix(prefix, fused.parts);
    size_t present = 0;
    std::string missing;
    for (const std::string& part : parts) {
      if (HasModule(index, part)) {
        ++present;
      } else {
        missing = part;
      }
    }
    if (present == parts.size()) return parts;
    if (present > 0) {
      return BadCheckpoint(
          absl::StrCat("module ", prefix, name, ": its part ", missing, " is missing"));
    }
  }
  return Names{};
}

// Numbers N of "<prefix>N.".
std::set<int64_t> ExpertsBelow(const Index& index, const std::string& prefix) {
  std::set<int64_t> experts;
  for (auto it = index.lower_bound(prefix); it != index.end(); ++it) {
    if (!absl::StartsWith(it->first, prefix)) break;
    const size_t dot = it->first.find('.', prefix.size());
    if (dot == std::string::npos) continue;
    const std::string digits = it->first.substr(prefix.size(), dot - prefix.size());
    int64_t expert = 0;
    // Plain decimal numbers only: "007" and "+7" name something else.
    if (absl::SimpleAtoi(digits, &expert) && expert >= 0 && absl::StrCat(expert) == digits) {
      experts.insert(expert);
    }
  }
  return experts;
}

// The layers `names`; empty where the facts about one are not known.
std::vector<StandardTensor> FactsOf(const Names& names, const LayerFacts& facts) {
  std::vector<StandardTensor> found;
  for (const std::string& name : names) {
    const auto layer = facts.find(name);
    if (layer == facts.end()) return {};
    found.push_back(layer->second);
  }
  return found;
}

absl::Status CheckRows(const std::string& module, const Names& names,
                       const std::vector<StandardTensor>& rows) {
  for (size_t i = 1; i < rows.size(); ++i) {
    GEMMD_RETURN_IF_ERROR(CheckSameK(module, names[0], rows[0].shape.k, names[i], rows[i].shape.k));
    GEMMD_RETURN_IF_ERROR(CheckSameN(module, names[0], rows[0].shape.n, names[i], rows[i].shape.n));
  }
  const absl::Status alike = CheckAlike(rows);
  return alike.ok() ? alike : CannotJoin(module, alike, names);
}

}  // namespace

absl::Status CheckSameK(const std::string& module, const std::string& first, int64_t k,
                        const std::string& part, int64_t got) {
  if (got == k) return absl::OkStatus();
  return BadCheckpoint(absl::StrCat("module ", module, ": its part ", part, ": expected K ", k,
                                    " as ", first, " has, got ", got));
}

absl::Status CheckSameN(const std::string& module, const std::string& first, int64_t n,
                        const std::string& part, int64_t got) {
  const std::string name = Split(module).second;
  if (got == n || (name != "gate_up_proj" && name != "w13")) return absl::OkStatus();
  return BadCheckpoint(absl::StrCat("module ", module, ": its part ", part, ": expected N ", n,
                                    " as ", first, " has, got ", got));
}

absl::Status CheckSameSize(const std::string& module, const LayerShape& first, int64_t expert,
                           const LayerShape& got) {
  if (got.n == first.n && got.k == first.k) return absl::OkStatus();
  return BadCheckpoint(absl::StrCat("module ", module, ": its expert ", expert, ": expected N x K ",
                                    first.n, " x ", first.k, " as its first expert has, got ",
                                    got.n, " x ", got.k));
}

absl::Status CannotJoin(const std::string& module, const absl::Status& status, const Names& names) {
  std::vector<std::pair<std::string, std::string>> numbers;
  for (size_t i = 0; i < names.size(); ++i) {
    numbers.emplace_back(absl::StrCat("part ", i, " has"), absl::StrCat(names[i], " has"));
  }
  const std::string named = absl::StrReplaceAll(status.message(), numbers);
  return UnsupportedFormat(absl::StrCat("module ", module, ": its parts cannot be one layer: ", named));
}

absl::Status CheckParts(const std::string& module, const PartNames& parts,
                        const LayerFacts& facts) {
  std::vector<StandardTensor> experts;
  for (const Names& names : parts) {
    std::vector<StandardTensor> rows = FactsOf(names, facts);
    if (rows.empty()) return absl::OkStatus();
    GEMMD_RETURN_IF_ERROR(CheckRows(module, names, rows));
    experts.push_back(rows[0]);
    for (size_t i = 1; i < rows.size(); ++i) experts.back().shape.n += rows[i].shape.n;
    GEMMD_RETURN_IF_ERROR(CheckSameSize(
        module, experts[0].shape, static_cast<int64_t>(experts.size()) - 1, experts.back().shape));
  }
  const absl::Status alike = CheckAlike(experts);
  return alike.ok() ? alike : CannotJoin(module, alike);
}

absl::StatusOr<std::optional<PartNames>> FindParts(const Index& index, const std::string& module) {
  const auto [prefix, name] = Split(module);
  std::set<int64_t> experts;
  if (absl::EndsWith(prefix, "experts.")) experts = ExpertsBelow(index, prefix);
  if (experts.empty()) {  // a dense layer as a shared expert is, or stacks
    GEMMD_ASSIGN_OR_RETURN(const Names parts, RowParts(index, prefix, name));
    if (parts.empty()) return std::nullopt;
    return PartNames{parts};
  }
  const int64_t count = *experts.rbegin() + 1;
  if (count > kMostExperts) {
    return BadCheckpoint(absl::StrCat("module ", module, ": expert ", count - 1,
                                      ", expected less than ", kMostExperts));
  }
  PartNames parts;
  for (int64_t expert = 0; expert < count; ++expert) {
    GEMMD_ASSIGN_OR_RETURN(Names rows, RowParts(index, absl::StrCat(prefix, expert, "."), name));
    if (rows.empty() && expert == 0 && experts.count(0) != 0) return std::nullopt;
    if (rows.empty()) {
      return BadCheckpoint(absl::StrCat("module ", module, ": expert ", expert, " of ", count,
                                        " has no tensors for it"));
    }
    parts.push_back(std::move(rows));
  }
  return parts;
}

bool AreStacks(const PartNames& parts) { return parts.size() == 1 && IsStackName(parts[0][0]); }

absl::StatusOr<Range> PartsOf(const AxisSlice& experts, const PartNames& parts) {
  if (AreStacks(parts)) return Range{0, 1};
  return PartOf("experts", experts, static_cast<int64_t>(parts.size()));
}

absl::StatusOr<std::vector<RowPart>> FusedRowParts(const std::string& module, int64_t n) {
  const auto [prefix, name] = Split(module);
  // Experts of an attention (JetMoe) have an input_linear too, of heads.
  const bool is_granite = name == "input_linear" && !absl::StrContains(prefix, "attention");
  if ((name == "gate_up_proj" || name == "w13" || is_granite) && n % 2 == 0) {
    return std::vector<RowPart>{{.rows = n / 2}, {.rows = n / 2}};
  }
  for (const FusedName& fused : FusedNames()) {
    if (name != fused.name || fused.parts.size() < 2) continue;
    return Error(absl::StatusCode::kInvalidArgument, "MISSING_FIELD",
                 absl::StrCat("slice.row_parts is not set: module ", module,
                              " is stored as one, and "
                              "its ",
                              n, " rows are those of ", absl::StrJoin(fused.parts, ", ")));
  }
  return std::vector<RowPart>();
}

}  // namespace gemmd
