#include "kernels/select/tuning_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/contract/element_format.h"
#include "kernels/select/gemm_config.h"

namespace gemmd {
namespace {

// NumberFormatName leaves out what special values there are.
std::string FormatText(const NumberFormat& format) {
  std::string text = NumberFormatName(format);
  if (format.kind != NumberKind::kFloat || format.bits > 8) return text;
  switch (format.special) {
    case SpecialValues::kNone:
      return text + " finite";
    case SpecialValues::kNanOnly:
      return text + " nan";
    case SpecialValues::kIeee:
      return text + " ieee";
  }
  return text;
}

const char* ZeroPointText(ZeroPointKind kind) {
  switch (kind) {
    case ZeroPointKind::kNone:
      return "none";
    case ZeroPointKind::kInteger:
      return "integer";
    case ZeroPointKind::kFloat:
      return "float";
  }
  return "unknown";
}

const char* SecondaryText(SecondaryScaleKind kind) {
  switch (kind) {
    case SecondaryScaleKind::kNone:
      return "none";
    case SecondaryScaleKind::kTensor:
      return "tensor";
    case SecondaryScaleKind::kChannel:
      return "channel";
  }
  return "unknown";
}

const char* ActivationScaleText(ActivationScaleKind kind) {
  switch (kind) {
    case ActivationScaleKind::kNone:
      return "unscaled";
    case ActivationScaleKind::kStaticTensor:
      return "static";
    case ActivationScaleKind::kDynamicToken:
      return "token";
    case ActivationScaleKind::kDynamicGroup:
      return "group";
  }
  return "unknown";
}

struct Interval {
  int64_t first;
  int64_t last;
};

// What of the model's choices lies within `rows`, appended.
void AppendModel(const std::vector<Sm90Choice>& model, const Interval& rows,
                 std::vector<TunedChoice>& choices) {
  int64_t first = 1;
  for (Sm90Choice choice : model) {
    const int64_t begin = std::max(first, rows.first);
    const int64_t end = std::min(choice.largest_m, rows.last);
    first = choice.largest_m + 1;
    if (begin > end) continue;
    choice.largest_m = end;
    choices.push_back({choice, std::nullopt});
  }
}

}  // namespace

std::string SpecText(const QuantSpec& spec) {
  const auto& [weight, scale, scale_block_n, scale_block_k, zero_point, secondary_scale,
               has_group_index, bias, activation, activation_scale, activation_group] = spec;
  (void)bias;
  std::string text =
      absl::StrCat(FormatText(weight), ", scale ", FormatText(scale), " per ", scale_block_n, "x",
                   scale_block_k, ", zero points ", ZeroPointText(zero_point), ", secondary ",
                   SecondaryText(secondary_scale), ", activation ", FormatText(activation));
  if (activation.present()) {
    absl::StrAppend(&text, " ", ActivationScaleText(activation_scale), " ", activation_group);
  }
  if (has_group_index) absl::StrAppend(&text, ", group index");
  return text;
}

TuningKey TuningKeyOf(const DeviceClass& device, const QuantSpec& spec, const LayerShape& shape,
                      ElementType x_type) {
  return {device, SpecText(spec), shape.n, shape.k, ElementTypeName(x_type)};
}

const std::vector<int64_t>& DefaultTuningRows() {
  static const auto* rows =
      new std::vector<int64_t>{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096};
  return *rows;
}

int64_t FirstRowOf(const std::vector<MeasuredPoint>& points, size_t i) {
  int64_t before = i == 0 ? 0 : points[i - 1].m;
  for (const int64_t row : DefaultTuningRows()) {
    if (row < points[i].m) before = std::max(before, row);
  }
  return before + 1;
}

std::vector<TunedChoice> ChooseTuned(const QuantSpec& spec, const LayerShape& shape,
                                     ElementType x_type, const std::vector<MeasuredPoint>& points) {
  const std::vector<Sm90Choice> model = ChooseSm90(spec, shape, x_type);
  std::vector<TunedChoice> choices;
  int64_t next = 1;  // the first row that has no choice yet
  for (size_t i = 0; i < points.size(); ++i) {
    const MeasuredPoint& point = points[i];
    const std::optional<Sm90Choice> found =
        FindSm90Candidate(spec, shape, x_type, point.m, point.tiling);
    if (!found.has_value()) continue;
    AppendModel(model, {next, FirstRowOf(points, i) - 1}, choices);
    choices.push_back({*found, point});
    next = point.m + 1;
  }
  const bool is_open = !choices.empty() && choices.back().measured.has_value() &&
                       choices.back().choice.largest_m >= DefaultTuningRows().back();
  if (is_open) {
    choices.back().choice.largest_m = std::max(choices.back().choice.largest_m,
                                               LargestSm90M(choices.back().choice));
  } else {
    AppendModel(model, {next, model.back().largest_m}, choices);
  }
  return choices;
}

std::string ChosenBy(const TunedChoice& tuned, int clock_mhz) {
  if (tuned.measured.has_value()) return Describe(*tuned.measured);
  if (tuned.choice.model_cycles == 0 || clock_mhz == 0) return "the model";
  return absl::StrFormat("the model, which expects %.2f us",
                         tuned.choice.model_cycles / clock_mhz);
}

std::string Describe(const MeasuredPoint& point) {
  return absl::StrFormat("measured %.2f us at M = %d (the model's kernel: %.2f us)",
                         point.ns / 1000, point.m, point.model_choice_ns / 1000);
}

}  // namespace gemmd
