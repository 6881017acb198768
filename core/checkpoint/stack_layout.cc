#include "core/checkpoint/stack_layout.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/model_facts.h"

namespace gemmd {
namespace {

using Sizes = std::vector<int64_t>;

using enum StackLayout;

// ---- one projection ----

// A projection of one layer's experts, and what config.json says of its extents. Empty: nothing.
struct Projection {
  std::string tensor;
  const StackPart& part;
  TensorInfo weight;
  Sizes n;
  Sizes k;
};

Projection ProjectionOf(const ModelFacts& facts, const std::string& tensor, const StackPart& part,
                        const TensorInfo& weight) {
  Sizes inner = facts.expert_sizes.empty() ? facts.mlp_sizes : facts.expert_sizes;
  if (part.is_fused) {
    for (int64_t& size : inner) size *= 2;
  }
  if (part.goes_in) return {tensor, part, weight, inner, facts.hidden_sizes};
  return {tensor, part, weight, facts.hidden_sizes, inner};
}

bool Allows(const Sizes& sizes, int64_t extent) {
  return sizes.empty() || std::find(sizes.begin(), sizes.end(), extent) != sizes.end();
}

bool Fits(const Projection& one, StackLayout layout) {
  const LayerShape as = ShapeAs(layout, one.weight.shape);
  if (one.part.is_fused && as.n % 2 != 0) return false;
  return Allows(one.n, as.n) && Allows(one.k, as.k);
}

// The only layout that the sizes of config.json allow.
std::optional<StackLayout> Told(const Projection& one) {
  if (one.n.empty() && one.k.empty()) return std::nullopt;
  const bool rows = Fits(one, kRows);
  if (rows == Fits(one, kColumns)) return std::nullopt;
  return rows ? kRows : kColumns;
}

bool IsConfirmed(const Projection& one) { return !one.n.empty() && !one.k.empty(); }

absl::string_view Axes(StackLayout layout) {
  return layout == kRows ? "(experts, N, K)" : "(experts, K, N)";
}

// "[4, 96 or 192, 64] (experts, N, K)".
std::string Expected(const Projection& one, StackLayout layout) {
  const auto text = [](const Sizes& sizes, absl::string_view any) {
    return sizes.empty() ? std::string(any) : absl::StrJoin(sizes, " or ");
  };
  const std::string n = text(one.n, one.part.is_fused ? "2I" : "N");
  const std::string k = text(one.k, "K");
  const int64_t experts = one.weight.shape[0];
  const bool rows = layout == kRows;
  return absl::StrCat("[", experts, ", ", rows ? n : k, ", ", rows ? k : n, "] ", Axes(layout));
}

// "a.experts.down_proj BF16 [4, 64, 96]".
std::string Described(const Projection& one) {
  return absl::StrCat(one.tensor, " ", one.weight.Describe());
}

// ---- all projections of the experts of one layer ----

struct Stack {
  Projection own;
  std::vector<Projection> siblings;
  absl::Status unread;  // of a file that holds another
};

// The module of the tensor `name`, which lies below `prefix`, if it is a projection of experts.
const StackPart* PartBelow(const std::string& prefix, const std::string& name) {
  absl::string_view module = name;
  absl::ConsumeSuffix(&module, ".weight");
  if (module.find('.', prefix.size()) != absl::string_view::npos) return nullptr;
  return StackPartOf(std::string(module));
}

// A stack that the reader of this one would take for one too.
bool IsPlain(const TensorInfo& info) {
  constexpr int64_t kLargest = int64_t{1} << 40;
  return info.shape.size() == 3 && (info.dtype == "F16" || info.dtype == "BF16" || info.dtype == "F32") &&
         std::all_of(info.shape.begin(), info.shape.end(),
                     [](int64_t extent) { return extent >= 1 && extent <= kLargest; });
}

Stack StackOf(const CheckpointFiles& files, const std::string& module, Projection own) {
  Stack stack{std::move(own), {}, absl::OkStatus()};
  const std::string prefix = SplitModule(module).first;
  for (auto it = files.index().lower_bound(prefix); it != files.index().end(); ++it) {
    const auto& [name, shard] = *it;
    if (!absl::StartsWith(name, prefix)) break;
    const StackPart* const part = PartBelow(prefix, name);
    if (part == nullptr || name == stack.own.tensor) continue;
    const auto file = files.Shard(shard);
    if (!file.ok()) {
      stack.unread = file.status();
      continue;
    }
    const TensorInfo* const info = (*file)->Find(name);
    if (info == nullptr || !IsPlain(*info)) continue;
    stack.siblings.push_back(ProjectionOf(files.model_facts(), name, *part, *info));
  }
  return stack;
}

// Whether what comes out of one is what goes into the other.
bool Match(const Projection& a, const Projection& b, StackLayout layout) {
  const Projection& in = a.part.goes_in ? a : b;
  const Projection& out = a.part.goes_in ? b : a;
  const LayerShape in_shape = ShapeAs(layout, in.weight.shape);
  const LayerShape out_shape = ShapeAs(layout, out.weight.shape);
  return in_shape.k == out_shape.n && in_shape.n == (in.part.is_fused ? 2 : 1) * out_shape.k;
}

// The siblings on the other side of the activation.
std::vector<const Projection*> OtherEnds(const Stack& stack) {
  std::vector<const Projection*> ends;
  for (const Projection& sibling : stack.siblings) {
    if (sibling.part.goes_in != stack.own.part.goes_in) ends.push_back(&sibling);
  }
  return ends;
}

bool MatchesAll(const Stack& stack, StackLayout layout) {
  const std::vector<const Projection*> ends = OtherEnds(stack);
  return Fits(stack.own, layout) && std::all_of(ends.begin(), ends.end(), [&](const Projection* end) {
    return Match(stack.own, *end, layout);
  });
}

std::string DescribeEnds(const Stack& stack) {
  return absl::StrJoin(OtherEnds(stack), ", ", [](std::string* out, const Projection* end) {
    absl::StrAppend(out, Described(*end));
  });
}

// ---- the decision ----

class Decision {
 public:
  Decision(const CheckpointFiles& files, const ModuleTensors& tensors, std::string key, Stack stack)
      : files_(files),
        facts_(files.model_facts()),
        model_(StackModelOf(facts_)),
        tensors_(tensors),
        key_(std::move(key)),
        stack_(std::move(stack)) {
    if (HasRowsByName()) {
      fixed_ = kRows;
    } else if (model_ != nullptr && model_->is_sure) {
      fixed_ = model_->layout;
    }
  }

  absl::StatusOr<StackLayout> Make() const {
    GEMMD_RETURN_IF_ERROR(CheckOwn());
    GEMMD_ASSIGN_OR_RETURN(std::optional<StackLayout> layout, BySizes());
    if (!layout) {
      GEMMD_ASSIGN_OR_RETURN(layout, ByEnds());
    }
    if (!layout) {
      GEMMD_ASSIGN_OR_RETURN(layout, ByModel());
    }
    if (fixed_ && *layout != *fixed_) return Contradicts(*fixed_);
    if (!IsConfirmed(stack_.own) && !MatchesAll(stack_, *layout)) return NoEndsMatch();
    return *layout;
  }

 private:
  // Names of modules that have one layout in every model.
  bool HasRowsByName() const {
    const absl::string_view name = stack_.own.part.name;
    return absl::EndsWith(name, "_linear") || absl::StartsWith(name, "mlp");
  }
  std::string WhyFixed() const {
    return HasRowsByName() ? absl::StrCat(stack_.own.part.name, " has it") : DescribeModel(facts_);
  }

  absl::Status CheckOwn() const {
    const Projection& own = stack_.own;
    if (fixed_ ? Fits(own, *fixed_) : Fits(own, kRows) || Fits(own, kColumns)) return absl::OkStatus();
    const std::string got = absl::StrCat("the sizes of config.json", fixed_ ? " say" : "", ", got ",
                                         own.weight.Describe());
    if (fixed_) {
      return tensors_.Bad(key_, absl::StrCat("expected ", Expected(own, *fixed_), " as ", WhyFixed(),
                                             " and ", got));
    }
    return tensors_.Bad(key_, absl::StrCat("expected ", Expected(own, kRows), " or ",
                                           Expected(own, kColumns), " by ", got));
  }

  // The layout of the projections that the sizes of config.json tell it of.
  absl::StatusOr<std::optional<StackLayout>> BySizes() const {
    std::vector<const Projection*> told;
    if (Told(stack_.own)) told.push_back(&stack_.own);
    for (const Projection& sibling : stack_.siblings) {
      if (Told(sibling)) told.push_back(&sibling);
    }
    if (told.empty()) return std::optional<StackLayout>();
    const StackLayout layout = *Told(*told.front());
    for (const Projection* const other : told) {
      if (*Told(*other) == layout) continue;
      return tensors_.Bad(
          key_, absl::StrCat("by the sizes of config.json ", Described(*told.front()), " is ",
                             Axes(layout), ", but ", Described(*other), " is ", Axes(*Told(*other)),
                             ": expected one layout for the experts of a layer"));
    }
    return std::optional(layout);
  }

  // The only layout in which what one end puts out is what the other takes.
  absl::StatusOr<std::optional<StackLayout>> ByEnds() const {
    if (OtherEnds(stack_).empty()) return std::optional<StackLayout>();
    const bool rows = MatchesAll(stack_, kRows);
    const bool columns = MatchesAll(stack_, kColumns);
    if (rows != columns) return std::optional(rows ? kRows : kColumns);
    if (!rows && !IsConfirmed(stack_.own)) return NoEndsMatch();
    return std::optional<StackLayout>();
  }

  absl::StatusOr<std::optional<StackLayout>> ByModel() const {
    if (!stack_.unread.ok()) {
      return Annotate(stack_.unread, absl::StrCat("module ", tensors_.module()));
    }
    if (!files_.hidden_files().empty() && OtherEnds(stack_).empty()) {
      return BadCheckpoint(absl::StrCat(files_.hidden_files().front().status.message(), ": module ",
                                        tensors_.module(), ": what tells its layout, the other end of the ",
                                        "experts, may be in this file"));
    }
    if (IsConfirmed(stack_.own) && fixed_) return fixed_;
    if (IsConfirmed(stack_.own) && model_ != nullptr) return std::optional(model_->layout);
    const std::string ends = DescribeEnds(stack_);
    return UnsupportedFormat(absl::StrCat(
        tensors_.FileOf(key_), ": module ", tensors_.module(), ": tensor ", stack_.own.tensor, ": ",
        stack_.own.weight.Describe(), " fits ", Expected(stack_.own, kRows), " or ",
        Expected(stack_.own, kColumns), ", and config.json does not tell which is meant: ",
        DescribeModel(facts_), facts_.hidden_sizes.empty() ? ", no hidden_size" : "",
        facts_.expert_sizes.empty() && facts_.mlp_sizes.empty() ? ", no moe_intermediate_size" : "",
        ends.empty() ? "; there is no other end of these experts beside it"
                     : absl::StrCat("; both fit ", ends)));
  }

  absl::Status Contradicts(StackLayout fixed) const {
    std::vector<std::string> siblings;
    for (const Projection& sibling : stack_.siblings) siblings.push_back(Described(sibling));
    return tensors_.Bad(
        key_, absl::StrCat("expected ", Expected(stack_.own, fixed), " as ", WhyFixed(), ", got ",
                           stack_.own.weight.Describe(), " beside ", absl::StrJoin(siblings, ", "),
                           ", which can only be ", Axes(fixed == kRows ? kColumns : kRows)));
  }

  absl::Status NoEndsMatch() const {
    const bool goes_in = stack_.own.part.goes_in;
    return tensors_.Bad(
        key_, absl::StrCat("its ", stack_.own.weight.Describe(), " does not fit ", DescribeEnds(stack_),
                           ": expected ", goes_in ? "its K as their N, and its N as their K"
                                                  : "its N as their K, and its K as their N",
                           " (twice for gate and up in one), as config.json does not tell all sizes"));
  }

  const CheckpointFiles& files_;
  const ModelFacts& facts_;
  const StackModel* const model_;
  const ModuleTensors& tensors_;
  const std::string key_;
  const Stack stack_;
  std::optional<StackLayout> fixed_;  // by the module's name, or by a model that has no other
};

}  // namespace

LayerShape ShapeAs(StackLayout layout, const Shape& shape) {
  if (layout == StackLayout::kRows) return {shape[0], shape[1], shape[2]};
  return {shape[0], shape[2], shape[1]};
}

absl::StatusOr<StackLayout> StackLayoutOf(const CheckpointFiles& files, const ModuleTensors& tensors,
                                          const std::string& key, const StackPart& part,
                                          const TensorInfo& weight) {
  Projection own = ProjectionOf(files.model_facts(), tensors.module() + key, part, weight);
  return Decision(files, tensors, key, StackOf(files, tensors.module(), std::move(own))).Make();
}

}  // namespace gemmd
