#include "core/checkpoint/plain_experts.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/module_names.h"
#include "core/checkpoint/reader_parts.h"
#include "core/checkpoint/stack_layout.h"
#include "core/checkpoint/stack_models.h"

namespace gemmd {
namespace {

// Whether rows alternate gate, up. No shape tells it.
absl::StatusOr<bool> Interleaves(const ModelFacts& facts, const ModuleTensors& tensors,
                                 const StackPart& part, bool has_bias) {
  if (!part.is_fused) return false;
  if (absl::StartsWith(part.name, "mlp")) return true;  // gpt-oss, original names
  const StackModel* const model = StackModelOf(facts);
  if (model != nullptr && model->interleaves) return true;
  const bool is_named = !facts.model_types.empty() || !facts.architectures.empty();
  if (is_named && !has_bias) return false;
  return UnsupportedFormat(absl::StrCat(
      tensors.FileOf(""), ": module ", tensors.module(),
      ": rows of gate and up may follow each other or alternate, and ", DescribeModel(facts),
      has_bias ? " with a bias" : "", " in config.json does not tell which"));
}

// A stack without the bias that its model has would give wrong numbers.
absl::Status CheckBias(const ModelFacts& facts, const ModuleTensors& tensors, const std::string& key) {
  const StackModel* const model = StackModelOf(facts);
  if (model == nullptr || !model->has_bias || tensors.Find(key) != nullptr) return absl::OkStatus();
  return tensors.Bad(key, absl::StrCat("missing: all projections of experts have a bias as ",
                                       DescribeModel(facts), " says"));
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

absl::StatusOr<StandardTensor> ReadPlainStack(const CheckpointFiles& files, ModuleTensors& tensors) {
  const StackPart* const part = StackPartOf(tensors.module());
  if (part == nullptr) {
    return UnsupportedFormat(absl::StrCat("a stack of experts that is named ",
                                          SplitModule(tensors.module()).second,
                                          " has a layout that is not known"));
  }
  const std::string key = tensors.Find(".weight") != nullptr ? ".weight" : "";
  const std::string bias_key = key.empty() ? "_bias" : ".bias";
  GEMMD_ASSIGN_OR_RETURN(const TensorInfo weight, tensors.Require(key, 3));
  GEMMD_ASSIGN_OR_RETURN(const StackLayout layout,
                         StackLayoutOf(files, tensors, key, *part, weight));
  GEMMD_RETURN_IF_ERROR(CheckBias(files.model_facts(), tensors, bias_key));
  StandardTensor tensor;
  GEMMD_ASSIGN_OR_RETURN(tensor.gate_up_interleaved,
                         Interleaves(files.model_facts(), tensors, *part,
                                     tensors.Find(bias_key) != nullptr));
  GEMMD_ASSIGN_OR_RETURN(TensorData codes,
                         tensors.Read(key, {"F16", "BF16", "F32"}, {weight.shape}));
  tensor.shape = ShapeAs(layout, weight.shape);
  tensor.spec.weight = FormatOfDtype(weight.dtype);
  const int64_t element_bytes = tensor.spec.weight.bits / 8;
  if (layout == StackLayout::kColumns) {
    TransposeEach(codes.bytes, tensor.shape.experts, tensor.shape.k, tensor.shape.n, element_bytes);
  }
  tensor.codes = PadRows(std::move(codes.bytes), tensor.shape.k * element_bytes);
  GEMMD_RETURN_IF_ERROR(ReadBias(tensors, bias_key, tensor));
  return tensor;
}

}  // namespace gemmd
