// What    quant_method fp8: 8-bit floats with one scale per block (DeepSeek), tensor (AutoFP8) or channel,
//         linears and stacks of experts, and MXFP4 experts inside such checkpoints.
// Source  https://huggingface.co/deepseek-ai/DeepSeek-V3 (weight_scale_inv multiplies, in spite of
//         its name); https://github.com/neuralmagic/AutoFP8; github.com/huggingface/transformers,
//         integrations/finegrained_fp8.py (stacks, activation_scale); layouts: README.md.
#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/activation_parts.h"
#include "core/checkpoint/composite.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/module_rules.h"
#include "core/checkpoint/reader.h"
#include "core/checkpoint/reader_parts.h"

namespace gemmd {
namespace fp8 {
namespace {

struct Fp8Scheme {
  std::string dtype;  // of the weight
  bool static_activation = false;
  int64_t block_n = 0;  // 0 = per tensor
  int64_t block_k = 0;
};

absl::Status ParseBlock(const Json& config, Fp8Scheme& scheme) {
  if (FindField(config, {"weight_block_size"}) == nullptr) return absl::OkStatus();
  GEMMD_ASSIGN_OR_RETURN(std::tie(scheme.block_n, scheme.block_k),
                         PairField(config, {"weight_block_size"}));
  return absl::OkStatus();
}

absl::StatusOr<Fp8Scheme> ParseScheme(const Json& config) {
  Fp8Scheme scheme;
  GEMMD_ASSIGN_OR_RETURN(const std::string format, NameField(config, {"fmt"}, "e4m3"));
  GEMMD_ASSIGN_OR_RETURN(const std::string activation,
                         NameField(config, {"activation_scheme"}, "dynamic"));
  if (format != "e4m3" && format != "e4m3fn" && format != "float8_e4m3fn" && format != "e5m2") {
    return UnsupportedFormat(
        absl::StrCat("FP8 fmt \"", format, "\" is not read: e4m3 and e5m2 are"));
  }
  if (activation != "dynamic" && activation != "static") {
    return UnsupportedFormat(absl::StrCat("FP8 activation_scheme \"", activation,
                                          "\" is not read: dynamic and static are"));
  }
  scheme.dtype = format == "e5m2" ? "F8_E5M2" : "F8_E4M3";
  scheme.static_activation = activation == "static";
  GEMMD_RETURN_IF_ERROR(ParseBlock(config, scheme));
  return scheme;
}

// Where a module's tensors are. A linear holds its weight in ".weight", a stack of experts there or directly
// under its own name.
struct Keys {
  std::string weight;
  std::vector<std::string> block_scales;       // one of them, or several that say the same
  std::vector<std::string> scales;             // without blocks: one of them
  std::vector<std::string> activation_scales;  // static ones: one of them
  std::string bias;
  size_t rank;
};

Keys KeysOf(const ModuleTensors& tensors) {
  const TensorInfo* weight = tensors.Find(".weight");
  if (tensors.Find("") != nullptr && weight == nullptr) {
    return {"",
            {"_scale_inv", "_weight_scale"},
            {"_scale_inv", "_weight_scale"},
            {"_activation_scale", "_input_scale"},
            "_bias",
            3};
  }
  return {".weight",
          {".weight_scale_inv", ".weight_scale", ".scale"},
          {".weight_scale", ".weight_scale_inv"},
          {".input_scale", ".activation_scale"},
          ".bias",
          weight != nullptr && weight->shape.size() == 3 ? size_t{3} : size_t{2}};
}

// The first of `keys` that the module has; the first of all where it has none.
const std::string& Present(const ModuleTensors& tensors, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    if (tensors.Find(key) != nullptr) return key;
  }
  return keys.front();
}

// Shapes of scales without blocks: one for all, one per expert, per half of gate and up, or per channel.
std::vector<Shape> ScaleShapes(const ModuleTensors& tensors, size_t rank, const LayerShape& shape) {
  const auto [experts, n, k] = shape;
  std::vector<Shape> shapes = {{}, {1}};
  if (rank == 2) {
    shapes.insert(shapes.end(), {{n}, {n, 1}});
    return shapes;
  }
  shapes.insert(shapes.end(), {{experts}, {experts, 1}, {experts, 1, 1}});
  const auto parts = FusedRowParts(tensors.module(), n);
  if (parts.ok() && parts->size() == 2) shapes.insert(shapes.end(), {{experts, 2}, {experts, 2, 1}});
  shapes.insert(shapes.end(), {{experts, n}, {experts, n, 1}});
  return shapes;
}

// `scales` of all experts, or one that they share, as the standard representation has them: one per
// expert or one per row.
void SetScales(const Buffer& scales, StandardTensor& tensor) {
  const auto [experts, n, k] = tensor.shape;
  const int64_t bytes = tensor.spec.scale.bits / 8;
  const int64_t stored = static_cast<int64_t>(scales.size()) / bytes;
  const int64_t each = std::max<int64_t>(stored / experts, 1);  // of one expert
  const int64_t rows = each == 1 ? 1 : n;
  tensor.spec.scale_block_n = each == 1 ? 0 : 1;
  tensor.scales.clear();
  for (int64_t expert = 0; expert < experts; ++expert) {
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t index = stored == 1 ? 0 : expert * each + row * each / rows;
      const auto from = scales.begin() + index * bytes;
      tensor.scales.insert(tensor.scales.end(), from, from + bytes);
    }
  }
}

absl::Status ReadScalesWithoutBlocks(const Keys& keys, ModuleTensors& tensors,
                                     StandardTensor& tensor) {
  GEMMD_ASSIGN_OR_RETURN(
      const TensorData scales,
      ReadScales(tensors, Present(tensors, keys.scales), {"F32", "BF16", "F16"},
                 ScaleShapes(tensors, keys.rank, tensor.shape), ScaleSign::kPositive, "weight_block_size null"));
  tensor.spec.scale = FormatOfDtype(scales.info.dtype);
  SetScales(scales.bytes, tensor);
  return absl::OkStatus();
}

absl::Status ReadActivation(const Fp8Scheme& scheme, const Keys& keys, ModuleTensors& tensors,
                            StandardTensor& tensor) {
  if (scheme.static_activation) {
    return ReadStaticActivation(tensors, Present(tensors, keys.activation_scales),
                                tensor.spec.weight, tensor);
  }
  SetDynamicActivation(tensor.spec.weight, scheme.block_k, tensor);
  return absl::OkStatus();
}

// The name of the scales of blocks: DeepSeek-V4 has ".scale". Another one must hold the same.
absl::StatusOr<TensorData> ReadGrid(const Fp8Scheme& scheme, const std::vector<std::string>& keys, const Shape& grid,
                                    ModuleTensors& tensors) {
  const std::string& key = Present(tensors, keys);
  const std::string blocks = absl::StrCat("weight_block_size [", scheme.block_n, ", ", scheme.block_k, "]");
  GEMMD_ASSIGN_OR_RETURN(TensorData scales, ReadScales(tensors, key, {"F32", "BF16", "F8_E8M0"}, {grid},
                                                       ScaleSign::kPositive, blocks));
  for (const std::string& other : keys) {
    if (other == key || tensors.Find(other) == nullptr) continue;
    GEMMD_ASSIGN_OR_RETURN(const TensorData same, tensors.Read(other, {scales.info.dtype}, {grid}));
    if (same.bytes == scales.bytes) continue;
    return tensors.Bad(other, absl::StrCat("expected the scales of ", tensors.module(), key, ", got others"));
  }
  return scales;
}

absl::Status ReadBlockScales(const Fp8Scheme& scheme, const Keys& keys, ModuleTensors& tensors,
                             StandardTensor& tensor) {
  tensor.spec.scale_block_n = scheme.block_n;
  tensor.spec.scale_block_k = scheme.block_k;
  const auto [experts, n, k] = tensor.shape;
  Shape grid = {tensor.spec.ScaleRows(n), tensor.spec.ScaleColumns(k)};
  if (keys.rank == 3) grid.insert(grid.begin(), experts);
  GEMMD_ASSIGN_OR_RETURN(TensorData scales, ReadGrid(scheme, keys.block_scales, grid, tensors));
  tensor.spec.scale = FormatOfDtype(scales.info.dtype);
  tensor.scale_columns = grid.back();
  tensor.scales = std::move(scales.bytes);
  return absl::OkStatus();
}

absl::StatusOr<StandardTensor> ReadLinear(const Fp8Scheme& scheme, ModuleTensors& tensors) {
  const Keys keys = KeysOf(tensors);
  StandardTensor tensor;
  GEMMD_RETURN_IF_ERROR(ReadFloat8Weight(tensors, keys.weight, keys.rank, {scheme.dtype}, tensor));
  GEMMD_RETURN_IF_ERROR(scheme.block_n > 0 ? ReadBlockScales(scheme, keys, tensors, tensor)
                                           : ReadScalesWithoutBlocks(keys, tensors, tensor));
  GEMMD_RETURN_IF_ERROR(ReadBias(tensors, keys.bias, tensor));
  GEMMD_RETURN_IF_ERROR(ReadActivation(scheme, keys, tensors, tensor));
  return tensor;
}

absl::StatusOr<bool> IsSkipped(const Json& config, const std::string& module) {
  GEMMD_ASSIGN_OR_RETURN(const std::vector<std::string> exact,
                         StringsField(config, {"ignored_layers"}));
  if (std::find(exact.begin(), exact.end(), module) != exact.end()) return true;
  GEMMD_ASSIGN_OR_RETURN(const std::vector<std::string> patterns,
                         StringsField(config, {"modules_to_not_convert"}));
  return SkippedByPatterns(patterns, module);
}

absl::StatusOr<StandardTensor> Read(const Json& config, const ReadingOptions&, ModuleTensors& tensors) {
  const std::string weight_key = KeysOf(tensors).weight;
  const TensorInfo* weight = tensors.Find(weight_key);
  // DeepSeek-V4: two e2m1 codes to a byte. The block size of the config does not apply to them.
  const bool is_mxfp4 = weight != nullptr && (weight->dtype == "I8" || weight->dtype == "U8");
  const bool is_float8 = weight != nullptr && FormatOfDtype(weight->dtype).bits == 8;
  GEMMD_ASSIGN_OR_RETURN(const bool skipped, IsSkipped(config, tensors.module()));
  GEMMD_RETURN_IF_ERROR(CheckAgreement(tensors, !skipped, is_mxfp4 || is_float8, "8-bit .weight"));
  if (is_mxfp4) {
    GEMMD_ASSIGN_OR_RETURN(StandardTensor tensor, ReadPlainMxfp4(tensors, weight_key, ".scale"));
    GEMMD_RETURN_IF_ERROR(ReadBias(tensors, ".bias", tensor));
    return tensor;
  }
  GEMMD_ASSIGN_OR_RETURN(const Fp8Scheme scheme, ParseScheme(config));
  return ReadLinear(scheme, tensors);
}

}  // namespace
}  // namespace fp8

CheckpointReader Fp8Reader() {
  return {"fp8",
          {".weight_scale_inv", "_scale_inv", ".weight_scale", "_weight_scale", ".scale"},
          &fp8::Read};
}

}  // namespace gemmd
