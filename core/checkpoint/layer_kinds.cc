#include "core/checkpoint/layer_kinds.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "core/checkpoint/composite.h"
#include "core/checkpoint/module_rules.h"
#include "core/checkpoint/module_tensors.h"
#include "core/quant/input_scale.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

// "model.layers.17.mlp.w1" -> "model.layers.#.mlp.w1".
std::string SharedRole(const std::string& module) {
  return absl::StrJoin(absl::StrSplit(module, '.'), ".", [](std::string* out, absl::string_view word) {
    const bool is_number = word.find_first_not_of("0123456789") == absl::string_view::npos;
    absl::StrAppend(out, is_number ? "#" : word);
  });
}

// What is known of a module without its numbers.
struct Outline {
  std::string kind;              // equal for modules of one kind
  std::optional<Range> experts;  // those of the slice, of a stack that is stored one by one
};

// How a g_idx orders the columns: "runs of 128" like no index at all, or "reordered". Kernels differ by that, and no
// shape tells it. One that cannot be read is its reader's to refuse.
std::string OrderOf(ModuleTensors& tensors, const char* key) {
  const TensorInfo* const info = tensors.Find(key);
  if (info == nullptr || info->shape.size() != 1) return "";
  const int64_t k = info->shape[0];
  const absl::StatusOr<TensorData> index = tensors.Read(key, {"I32"}, {{k}});
  if (!index.ok()) return absl::StrCat(key, " unreadable\n");
  int64_t run = 0;
  while (run < k && index->at<int32_t>(run) == 0) ++run;
  for (int64_t i = 0; i < k; ++i) {
    if (run == 0 || index->at<int32_t>(i) != i / run) return absl::StrCat(key, " reordered\n");
  }
  return absl::StrCat(key, " runs of ", run, "\n");
}

// Names, types and shapes of a module's tensors, the order of its columns, and what the config says of it.
absl::StatusOr<std::string> DescribeModule(const CheckpointFiles& files, ModuleTensors& tensors) {
  GEMMD_ASSIGN_OR_RETURN(const std::string rules,
                         RulesOf(files.quantization_config(), tensors.module()));
  std::string text = tensors.Layout();
  for (const char* key : {".g_idx", ".weight_g_idx"}) text += OrderOf(tensors, key);
  return text + rules;
}

absl::StatusOr<std::string> LayoutOf(const CheckpointFiles& files,
                                     const std::vector<std::string>& parts) {
  std::string layout;
  for (const std::string& part : parts) {
    GEMMD_ASSIGN_OR_RETURN(ModuleTensors tensors, ModuleTensors::Open(files, part, nullptr));
    GEMMD_ASSIGN_OR_RETURN(const std::string description, DescribeModule(files, tensors));
    absl::StrAppend(&layout, SharedRole(part), "\n", description);
  }
  return layout;
}

absl::StatusOr<Outline> OutlineOfParts(const CheckpointFiles& files, const PlannedModule& module,
                                       const PartNames& parts, std::string kind) {
  GEMMD_ASSIGN_OR_RETURN(const Range range, PartsOf(module.slice.experts, parts));
  std::set<std::string> layouts;
  for (int64_t expert = range.begin; expert < range.end; ++expert) {
    GEMMD_ASSIGN_OR_RETURN(std::string layout, LayoutOf(files, parts[static_cast<size_t>(expert)]));
    layouts.insert(std::move(layout));
  }
  absl::StrAppend(&kind, range.end - range.begin, " of ", parts.size(), "\n");
  for (const std::string& layout : layouts) absl::StrAppend(&kind, layout);
  Outline outline{std::move(kind), std::nullopt};
  if (layouts.size() == 1 && !AreStacks(parts)) outline.experts = range;
  return outline;
}

absl::StatusOr<Outline> OutlineOf(const Checkpoint& checkpoint, const PlannedModule& module) {
  const CheckpointFiles& files = checkpoint.files();
  std::string kind = absl::StrCat(SharedRole(module.module), "\n", module.slice.Text(), "\n");
  auto own = ModuleTensors::Open(files, module.module, nullptr);
  if (own.ok()) {
    GEMMD_ASSIGN_OR_RETURN(const std::string description, DescribeModule(files, *own));
    return Outline{kind + description, std::nullopt};
  }
  if (ReasonOf(own.status()) != "MODULE_NOT_FOUND") return own.status();
  GEMMD_ASSIGN_OR_RETURN(const std::optional<PartNames> parts,
                         FindParts(files.index(), module.module));
  if (!parts) return own.status();
  return OutlineOfParts(files, module, *parts, std::move(kind));
}

// What is wrong with the slice that was asked for does not say of which module.
absl::Status Naming(const std::string& module, const absl::Status& status) {
  if (absl::IsCancelled(status) || absl::StrContains(status.message(), module)) return status;
  return Annotate(status, absl::StrCat("module ", module));
}

absl::StatusOr<LayerKind> ReadKind(const Checkpoint& checkpoint, const PlannedModule& module,
                                   const std::optional<Range>& experts,
                                   const ProgressFunction& go_on, const QuantizeOnRead* quantize) {
  SliceRequest slice = module.slice;
  if (experts) slice.experts = {.range = {experts->begin, experts->begin + 1}};
  const absl::StatusOr<CheckpointLayer> layer =
      checkpoint.ReadLayer(module.module, go_on, slice, quantize);
  if (!layer.ok()) return Naming(module.module, layer.status());
  LayerKind kind{0, layer->tensor.spec, layer->tensor.shape, TraitsOf(layer->tensor)};
  if (experts) kind.shape.experts = experts->end - experts->begin;
  return kind;
}

}  // namespace

absl::StatusOr<std::vector<LayerKind>> LayerKindsOf(const Checkpoint& checkpoint,
                                                    const std::vector<PlannedModule>& modules,
                                                    const std::function<bool()>& cancelled,
                                                    const QuantizeTarget* quantize) {
  const ProgressFunction go_on = [&cancelled](uint64_t, uint64_t) { return !cancelled(); };
  std::optional<QuantizeOnRead> quantized;
  if (quantize != nullptr) quantized.emplace(QuantizeOnRead{*quantize, nullptr, go_on});
  std::vector<LayerKind> kinds;
  std::map<std::string, size_t> seen;
  for (const PlannedModule& module : modules) {
    if (cancelled()) return absl::CancelledError("the client has gone");
    const absl::StatusOr<Outline> outline = OutlineOf(checkpoint, module);
    if (!outline.ok()) return Naming(module.module, outline.status());
    const auto [place, is_new] = seen.emplace(outline->kind, kinds.size());
    if (is_new) {
      GEMMD_ASSIGN_OR_RETURN(LayerKind kind,
                             ReadKind(checkpoint, module, outline->experts, go_on,
                                      quantized.has_value() ? &*quantized : nullptr));
      kinds.push_back(kind);
    }
    ++kinds[place->second].modules;
  }
  return kinds;
}

}  // namespace gemmd
