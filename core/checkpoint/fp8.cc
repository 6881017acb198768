// What    quant_method fp8: 8-bit floats with one scale per block (DeepSeek) or per tensor
//         (AutoFP8), and MXFP4 experts inside such checkpoints.
// Source  https://huggingface.co/deepseek-ai/DeepSeek-V3 (weight_scale_inv multiplies, in spite of
//         its name); https://github.com/neuralmagic/AutoFP8; layouts: README.md.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/checkpoint/activation_parts.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/module_rules.h"
#include "core/checkpoint/reader.h"
#include "core/checkpoint/reader_parts.h"

namespace gemmd {
namespace {

struct Fp8Scheme {
  std::string dtype;  // of the weight
  bool static_activation = false;
  int64_t block_n = 0;  // 0 = per tensor
  int64_t block_k = 0;
};

absl::Status ParseBlock(const Json& config, Fp8Scheme& scheme) {
  const Json* block = FindField(config, {"weight_block_size"});
  if (block == nullptr) return absl::OkStatus();
  const auto is_extent = [](const Json& value) {
    return value.is_number_unsigned() && value.get<uint64_t>() >= 1 &&
           value.get<uint64_t>() <= 1 << 30;
  };
  if (!block->is_array() || block->size() != 2 || !is_extent((*block)[0]) ||
      !is_extent((*block)[1])) {
    return BadCheckpoint("\"weight_block_size\": expected two positive integers");
  }
  scheme.block_n = (*block)[0].get<int64_t>();
  scheme.block_k = (*block)[1].get<int64_t>();
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

// A linear holds its weight in ".weight", a stack of experts directly under its own name.
struct Keys {
  std::string weight;
  std::string block_scale;
  std::string bias;
  size_t rank;
};

Keys KeysOf(const ModuleTensors& tensors) {
  if (tensors.Find("") != nullptr) return {"", "_scale_inv", "_bias", 3};
  return {".weight", ".weight_scale_inv", ".bias", 2};
}

// One scale for the tensor, or (AutoRound) one per channel.
absl::Status ReadTensorScale(ModuleTensors& tensors, StandardTensor& tensor) {
  const int64_t n = tensor.shape.n;
  GEMMD_ASSIGN_OR_RETURN(TensorData scale,
                         ReadScales(tensors, ".weight_scale", {"F32", "BF16", "F16"},
                                    {{}, {1}, {n}, {n, 1}}, ScaleSign::kPositive));
  tensor.spec.scale = FormatOfDtype(scale.info.dtype);
  const bool per_channel = static_cast<int64_t>(scale.bytes.size()) * 8 > tensor.spec.scale.bits;
  tensor.spec.scale_block_n = per_channel ? 1 : 0;
  tensor.scales = std::move(scale.bytes);
  return absl::OkStatus();
}

absl::Status ReadActivation(const Fp8Scheme& scheme, ModuleTensors& tensors,
                            StandardTensor& tensor) {
  if (scheme.static_activation) {
    return ReadStaticActivation(tensors, ".input_scale", tensor.spec.weight, tensor);
  }
  SetDynamicActivation(tensor.spec.weight, scheme.block_k, tensor);
  return absl::OkStatus();
}

absl::Status ReadBlockScales(const Fp8Scheme& scheme, const Keys& keys, ModuleTensors& tensors,
                             StandardTensor& tensor) {
  tensor.spec.scale_block_n = scheme.block_n;
  tensor.spec.scale_block_k = scheme.block_k;
  const auto [experts, n, k] = tensor.shape;
  Shape grid = {tensor.spec.ScaleRows(n), tensor.spec.ScaleColumns(k)};
  if (keys.rank == 3) grid.insert(grid.begin(), experts);
  GEMMD_ASSIGN_OR_RETURN(TensorData scales,
                         ReadScales(tensors, keys.block_scale, {"F32", "BF16", "F8_E8M0"}, {grid},
                                    ScaleSign::kPositive));
  tensor.spec.scale = FormatOfDtype(scales.info.dtype);
  tensor.scale_columns = grid.back();
  tensor.scales = std::move(scales.bytes);
  return absl::OkStatus();
}

absl::StatusOr<StandardTensor> ReadLinear(const Fp8Scheme& scheme, ModuleTensors& tensors) {
  const Keys keys = KeysOf(tensors);
  const bool is_stack = keys.rank == 3;
  StandardTensor tensor;
  GEMMD_RETURN_IF_ERROR(ReadFloat8Weight(tensors, keys.weight, keys.rank, {scheme.dtype}, tensor));
  if (scheme.block_n > 0) {
    GEMMD_RETURN_IF_ERROR(ReadBlockScales(scheme, keys, tensors, tensor));
  } else if (is_stack) {
    return UnsupportedFormat("FP8 stacks of experts without weight_block_size are not read");
  } else {
    GEMMD_RETURN_IF_ERROR(ReadTensorScale(tensors, tensor));
  }
  GEMMD_RETURN_IF_ERROR(ReadBias(tensors, keys.bias, tensor));
  GEMMD_RETURN_IF_ERROR(ReadActivation(scheme, tensors, tensor));
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

absl::StatusOr<StandardTensor> Read(const Json& config, ModuleTensors& tensors) {
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

CheckpointReader Fp8Reader() {
  return {"fp8", {".weight_scale_inv", "_scale_inv", ".weight_scale", ".scale"}, &Read};
}

}  // namespace gemmd
