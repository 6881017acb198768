#include "core/checkpoint/plain_experts.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/module_names.h"
#include "core/checkpoint/reader_parts.h"

namespace gemmd {
namespace {

using Sizes = std::vector<int64_t>;

// Where N and K are in the shape of a stack.
enum class Layout { kRows, kColumns };  // [E, N, K], [E, K, N]

// What is known of a model from its name.
struct Model {
  const char* type;          // model_type begins with it
  const char* architecture;  // so does the name of the class
  Layout layout;
  bool is_sure;              // the model's files have no other layout
  bool interleaves = false;  // rows of fused gate and up alternate
};

// The first that fits counts. Those that are not sure are read as transformers 5 holds them.
constexpr Model kModels[] = {
    {"gpt_oss", "GptOss", Layout::kColumns, true, true},
    {"llama4", "Llama4", Layout::kColumns, true},
    {"qwen2_moe", "Qwen2Moe", Layout::kRows, false},
    {"qwen3_moe", "Qwen3Moe", Layout::kRows, false},
    {"qwen3_next", "Qwen3Next", Layout::kRows, false},
    {"qwen3_5_moe", "Qwen3_5Moe", Layout::kRows, false},
    {"deepseek_v2", "DeepseekV2", Layout::kRows, false},
    {"deepseek_v3", "DeepseekV3", Layout::kRows, false},
    {"glm4_moe", "Glm4Moe", Layout::kRows, false},
    {"mixtral", "Mixtral", Layout::kRows, false},
    {"minimax", "MiniMax", Layout::kRows, false},
    {"olmoe", "Olmoe", Layout::kRows, false},
    {"phimoe", "Phimoe", Layout::kRows, false},
};

bool Names(const Model& model, const ModelFacts& facts) {
  const auto begins = [](const std::vector<std::string>& names, const char* prefix) {
    return std::any_of(names.begin(), names.end(), [prefix](const std::string& name) {
      return absl::StartsWith(name, prefix);
    });
  };
  return facts.model_types.empty() ? begins(facts.architectures, model.architecture)
                                   : begins(facts.model_types, model.type);
}

const Model* ModelOf(const ModelFacts& facts) {
  const auto* const found = std::find_if(std::begin(kModels), std::end(kModels),
                                         [&](const Model& model) { return Names(model, facts); });
  return found == std::end(kModels) ? nullptr : found;
}

// What config.json says of one stack's extents. Empty: nothing.
struct Expected {
  const StackPart& part;
  Sizes n;
  Sizes k;
};

Expected ExpectedOf(const StackPart& part, const ModelFacts& facts) {
  Sizes inner = facts.expert_sizes.empty() ? facts.mlp_sizes : facts.expert_sizes;
  if (part.is_fused) {
    for (int64_t& size : inner) size *= 2;
  }
  if (part.goes_in) return {part, inner, facts.hidden_sizes};
  return {part, facts.hidden_sizes, inner};
}

bool Allows(const Sizes& sizes, int64_t extent) {
  return sizes.empty() || std::find(sizes.begin(), sizes.end(), extent) != sizes.end();
}

LayerShape ShapeAs(Layout layout, const Shape& shape) {
  if (layout == Layout::kRows) return {shape[0], shape[1], shape[2]};
  return {shape[0], shape[2], shape[1]};
}

bool Fits(const Expected& expected, Layout layout, const Shape& shape) {
  const LayerShape as = ShapeAs(layout, shape);
  if (expected.part.is_fused && as.n % 2 != 0) return false;
  return Allows(expected.n, as.n) && Allows(expected.k, as.k);
}

// "[4, 96 or 192, 64] (experts, N, K)".
std::string Describe(const Expected& expected, Layout layout, int64_t experts) {
  const auto text = [](const Sizes& sizes, absl::string_view any) {
    return sizes.empty() ? std::string(any) : absl::StrJoin(sizes, " or ");
  };
  const std::string n = text(expected.n, expected.part.is_fused ? "2I" : "N");
  const std::string k = text(expected.k, "K");
  return layout == Layout::kRows
             ? absl::StrCat("[", experts, ", ", n, ", ", k, "] (experts, N, K)")
             : absl::StrCat("[", experts, ", ", k, ", ", n, "] (experts, K, N)");
}

// "model_type llama4, llama4_text".
std::string DescribeModel(const ModelFacts& facts) {
  if (!facts.model_types.empty())
    return absl::StrCat("model_type ", absl::StrJoin(facts.model_types, ", "));
  if (facts.architectures.empty()) return "no model_type";
  return absl::StrCat("architectures ", absl::StrJoin(facts.architectures, ", "));
}

// Names of modules that have one layout in every model.
bool IsRowsByName(const StackPart& part) {
  return absl::EndsWith(part.name, "_linear") || absl::StartsWith(part.name, "mlp");
}

absl::StatusOr<Layout> LayoutByShape(const ModelFacts& facts, const ModuleTensors& tensors,
                                     const std::string& key, const Expected& expected,
                                     const TensorInfo& weight) {
  const bool rows = Fits(expected, Layout::kRows, weight.shape);
  const bool columns = Fits(expected, Layout::kColumns, weight.shape);
  if (rows != columns) return rows ? Layout::kRows : Layout::kColumns;
  const std::string both = absl::StrCat(Describe(expected, Layout::kRows, weight.shape[0]), " or ",
                                        Describe(expected, Layout::kColumns, weight.shape[0]));
  if (!rows) {
    return tensors.Bad(key, absl::StrCat("expected ", both, " by the sizes of config.json, got ",
                                         weight.Describe()));
  }
  return UnsupportedFormat(absl::StrCat(
      tensors.FileOf(key), ": module ", tensors.module(), ": tensor ", tensors.module(), key, ": ",
      weight.Describe(), " fits ", both, ", and config.json does not tell which is meant: ",
      DescribeModel(facts), facts.hidden_sizes.empty() ? ", no hidden_size" : ""));
}

absl::StatusOr<Layout> LayoutOf(const ModelFacts& facts, const ModuleTensors& tensors,
                                const std::string& key, const StackPart& part,
                                const TensorInfo& weight) {
  const Model* const model = ModelOf(facts);
  const Expected expected = ExpectedOf(part, facts);
  const bool by_name = IsRowsByName(part);
  if (!by_name && (model == nullptr || !model->is_sure)) {
    const bool is_square = Fits(expected, Layout::kRows, weight.shape) &&
                           Fits(expected, Layout::kColumns, weight.shape);
    if (is_square && model != nullptr) return model->layout;
    return LayoutByShape(facts, tensors, key, expected, weight);
  }
  const Layout layout = by_name ? Layout::kRows : model->layout;
  if (Fits(expected, layout, weight.shape)) return layout;
  return tensors.Bad(
      key, absl::StrCat("expected ", Describe(expected, layout, weight.shape[0]), " as ",
                        by_name ? absl::StrCat(part.name, " has it") : DescribeModel(facts),
                        " and the sizes of config.json say, got ", weight.Describe()));
}

// Whether rows alternate gate, up. No shape tells it.
absl::StatusOr<bool> Interleaves(const ModelFacts& facts, const ModuleTensors& tensors,
                                 const StackPart& part, bool has_bias) {
  if (!part.is_fused) return false;
  if (absl::StartsWith(part.name, "mlp")) return true;  // gpt-oss, original names
  const Model* const model = ModelOf(facts);
  if (model != nullptr && model->interleaves) return true;
  const bool is_named = !facts.model_types.empty() || !facts.architectures.empty();
  if (is_named && !has_bias) return false;
  return UnsupportedFormat(absl::StrCat(
      tensors.FileOf(""), ": module ", tensors.module(),
      ": rows of gate and up may follow each other or alternate, and ", DescribeModel(facts),
      has_bias ? " with a bias" : "", " in config.json does not tell which"));
}

}  // namespace

bool IsPlainStack(const ModuleTensors& tensors) {
  if (tensors.Find("_blocks") != nullptr || tensors.Find(".blocks") != nullptr)
    return false;  // MXFP4
  if (IsStackName(tensors.module()) && StackPartOf(tensors.module()) != nullptr) return true;
  for (const char* key : {".weight", ""}) {
    const TensorInfo* weight = tensors.Find(key);
    if (weight != nullptr && weight->shape.size() == 3) return true;
  }
  return false;
}

absl::StatusOr<StandardTensor> ReadPlainStack(const ModelFacts& facts, ModuleTensors& tensors) {
  const StackPart* const part = StackPartOf(tensors.module());
  if (part == nullptr) {
    return UnsupportedFormat(absl::StrCat("a stack of experts that is named ",
                                          SplitModule(tensors.module()).second,
                                          " has a layout that is not known"));
  }
  const std::string key = tensors.Find(".weight") != nullptr ? ".weight" : "";
  const std::string bias_key = key.empty() ? "_bias" : ".bias";
  GEMMD_ASSIGN_OR_RETURN(const TensorInfo weight, tensors.Require(key, 3));
  GEMMD_ASSIGN_OR_RETURN(const Layout layout, LayoutOf(facts, tensors, key, *part, weight));
  StandardTensor tensor;
  GEMMD_ASSIGN_OR_RETURN(tensor.gate_up_interleaved,
                         Interleaves(facts, tensors, *part, tensors.Find(bias_key) != nullptr));
  GEMMD_ASSIGN_OR_RETURN(TensorData codes,
                         tensors.Read(key, {"F16", "BF16", "F32"}, {weight.shape}));
  tensor.shape = ShapeAs(layout, weight.shape);
  tensor.spec.weight = FormatOfDtype(weight.dtype);
  const int64_t element_bytes = tensor.spec.weight.bits / 8;
  if (layout == Layout::kColumns) {
    TransposeEach(codes.bytes, tensor.shape.experts, tensor.shape.k, tensor.shape.n, element_bytes);
  }
  tensor.codes = PadRows(std::move(codes.bytes), tensor.shape.k * element_bytes);
  GEMMD_RETURN_IF_ERROR(ReadBias(tensors, bias_key, tensor));
  return tensor;
}

}  // namespace gemmd
