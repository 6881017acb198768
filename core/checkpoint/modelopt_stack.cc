#include "core/checkpoint/modelopt_stack.h"

#include <array>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/reader_parts.h"
#include "core/quant/combine.h"

namespace gemmd {
namespace {

constexpr char kGptOss[] = "gpt_oss";

// The tensors of a stack besides its weight, without "_" or "." in front.
constexpr std::array<const char*, 5> kCompanions = {"weight_scale", "weight_scale_2", "input_scale",
                                                    "pre_quant_scale", "bias"};

std::string WeightKey(const ModuleTensors& tensors) {
  return tensors.Find(".weight") != nullptr ? ".weight" : "";
}

// Experts of these models multiply x [tokens, K] with weights [K, N].
bool MultipliesFromTheRight(const std::string& model_type) {
  return model_type == kGptOss || model_type == "llama4" || model_type == "llama4_text";
}

// Bytes of a block of columns that share a scale, along K of the stored weight; 0 = no such blocks.
int64_t BlockBytes(const ModelOptScheme& scheme) {
  const std::string& algorithm = scheme.algorithm;
  if (absl::StrContains(algorithm, "nvfp4")) return ModelOptNvfp4Block(scheme) / 2;
  if (algorithm == "mxfp4" || algorithm == "w4a8_mxfp4_fp8") return 16;
  if (algorithm == "mxfp8") return 32;
  return 0;
}

// Whether weight and scales lie as [E, K, N]. Blocks tell by their shapes, others only by the model.
absl::StatusOr<bool> IsTransposed(const ModelOptScheme& scheme, const ModuleTensors& tensors,
                                  const TensorInfo& weight, const TensorInfo* scale) {
  const bool from_the_right = MultipliesFromTheRight(scheme.model_type);
  const int64_t block = BlockBytes(scheme);
  if (block > 0 && scale != nullptr && scale->shape.size() == 3) {
    const auto fits = [&](size_t n, size_t k) {
      return scale->shape[n] == weight.shape[n] && scale->shape[k] * block == weight.shape[k];
    };
    const bool is_nvfp4 = absl::StrContains(scheme.algorithm, "nvfp4");
    if (fits(1, 2) && (is_nvfp4 || !from_the_right)) return false;
    if (fits(2, 1)) return true;
    if (!fits(1, 2)) {
      return tensors.Bad(absl::StrCat("weight ", weight.Describe(), " and scales ",
                                      scale->Describe(), " do not fit in blocks of ", block,
                                      " bytes"));
    }
  } else if (scheme.algorithm == "fp8" || !from_the_right) {
    return from_the_right;
  }
  // Its exporter takes these weights for [E, N, K].
  return UnsupportedFormat(absl::StrCat("ModelOpt quant_algo \"", scheme.algorithm,
                                        "\" of experts of ", scheme.model_type,
                                        " is not read: its groups run along N"));
}

// Element `expert` of a stack, or the tensor itself where all experts share one number.
absl::StatusOr<TensorData> CutExpert(const ModuleTensors& tensors, const std::string& key,
                                     const TensorData& stack, int64_t expert, int64_t experts,
                                     bool shared) {
  if (shared || stack.info.shape.empty() || stack.info.shape == Shape{1}) return stack;
  if (stack.info.shape[0] != experts) {
    return tensors.Bad(key, absl::StrCat("expected one for each of ", experts, " experts, got ",
                                         stack.info.Describe()));
  }
  TensorData cut;
  cut.info = stack.info;
  cut.info.shape.erase(cut.info.shape.begin());
  const int64_t bytes = static_cast<int64_t>(stack.bytes.size()) / experts;
  const auto from = stack.bytes.begin() + expert * bytes;
  cut.bytes.assign(from, from + bytes);
  cut.info.bytes = bytes;
  // [1, 1] and the like.
  bool single = true;
  for (const int64_t extent : cut.info.shape) single = single && extent == 1;
  if (single) cut.info.shape.clear();
  return cut;
}

void TransposeBytes(TensorData& matrix) {
  matrix.bytes = Transpose(matrix.bytes, matrix.info.shape[0], matrix.info.shape[1], 1);
  std::swap(matrix.info.shape[0], matrix.info.shape[1]);
}

// Every tensor of the stack by the key that it has in a module of one expert.
absl::StatusOr<std::map<std::string, TensorData>> ReadAll(ModuleTensors& tensors,
                                                          const std::string& weight_key) {
  std::map<std::string, TensorData> all;
  const auto read = [&](const std::string& key, const std::string& as) -> absl::Status {
    const TensorInfo* info = tensors.Find(key);
    if (info == nullptr) return absl::OkStatus();
    GEMMD_ASSIGN_OR_RETURN(all[as], tensors.Read(key, {info->dtype}, {info->shape}));
    return absl::OkStatus();
  };
  GEMMD_RETURN_IF_ERROR(read(weight_key, ".weight"));
  const char* separator = weight_key.empty() ? "_" : ".";
  for (const char* companion : kCompanions) {
    GEMMD_RETURN_IF_ERROR(read(absl::StrCat(separator, companion), absl::StrCat(".", companion)));
  }
  return all;
}

absl::StatusOr<ModuleTensors> ExpertModule(const ModuleTensors& tensors,
                                           const std::map<std::string, TensorData>& all,
                                           int64_t expert, bool transposed) {
  const int64_t experts = all.at(".weight").info.shape[0];
  std::map<std::string, TensorData> own;
  for (const auto& [key, stack] : all) {
    const bool shared = key == ".pre_quant_scale" && stack.info.shape.size() == 1;
    GEMMD_ASSIGN_OR_RETURN(TensorData cut, CutExpert(tensors, key, stack, expert, experts, shared));
    const bool is_matrix = key == ".weight" || key == ".weight_scale";
    if (transposed && is_matrix && cut.info.shape.size() == 2) TransposeBytes(cut);
    own.emplace(key, std::move(cut));
  }
  return ModuleTensors::FromMemory(
      tensors.module(), absl::StrCat(tensors.FileOf(""), ", expert ", expert), std::move(own));
}

}  // namespace

bool IsModelOptStack(const ModuleTensors& tensors) {
  const TensorInfo* weight = tensors.Find(WeightKey(tensors));
  return weight != nullptr && weight->shape.size() == 3;
}

absl::StatusOr<StandardTensor> ReadModelOptStack(
    const ModelOptScheme& scheme, ModuleTensors& tensors,
    const std::function<absl::StatusOr<StandardTensor>(ModuleTensors&)>& read) {
  const std::string weight_key = WeightKey(tensors);
  GEMMD_ASSIGN_OR_RETURN(const TensorInfo weight, tensors.Require(weight_key, 3));
  GEMMD_ASSIGN_OR_RETURN(
      const bool transposed,
      IsTransposed(scheme, tensors, weight,
                   tensors.Find(weight_key.empty() ? "_weight_scale" : ".weight_scale")));
  std::vector<StandardTensor> experts;
  {
    GEMMD_ASSIGN_OR_RETURN(const auto all, ReadAll(tensors, weight_key));
    for (int64_t expert = 0; expert < weight.shape[0]; ++expert) {
      GEMMD_ASSIGN_OR_RETURN(ModuleTensors own, ExpertModule(tensors, all, expert, transposed));
      GEMMD_ASSIGN_OR_RETURN(StandardTensor tensor, read(own));
      GEMMD_RETURN_IF_ERROR(own.RejectOthers());
      experts.push_back(std::move(tensor));
    }
  }
  auto stack = StackExperts(std::move(experts));
  if (!stack.ok()) return tensors.Bad(stack.status().message());
  stack->gate_up_interleaved =
      scheme.model_type == kGptOss && absl::EndsWith(tensors.module(), ".gate_up_proj");
  return stack;
}

}  // namespace gemmd
