// What    quant_method mxfp4: gpt-oss stacks of experts (blocks, scales, bias), and plain weights
//         with one exponent per 32 columns.
// Source  OCP Microscaling Formats (MX) 1.0; https://huggingface.co/openai/gpt-oss-20b; layouts:
//         README.md.
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/checkpoint/errors.h"
#include "core/checkpoint/module_rules.h"
#include "core/checkpoint/reader.h"
#include "core/checkpoint/reader_parts.h"

namespace gemmd {
namespace mxfp4 {
namespace {

constexpr int64_t kBlock = 32;
constexpr int64_t kBlockBytes = kBlock / 2;

// blocks [E, N, K/32, 16], scales [E, N, K/32], bias [E, N]. `separator` is "_" in the names of
// Hugging Face and "." in the original ones.
absl::StatusOr<StandardTensor> ReadExperts(ModuleTensors& tensors, const std::string& separator) {
  const std::string blocks_key = absl::StrCat(separator, "blocks");
  GEMMD_ASSIGN_OR_RETURN(const TensorInfo info, tensors.Require(blocks_key, 4));
  const int64_t blocks = info.shape[2];
  StandardTensor tensor;
  tensor.shape = {info.shape[0], info.shape[1], blocks * kBlock};
  const Shape expected = {tensor.shape.experts, tensor.shape.n, blocks, kBlockBytes};
  GEMMD_ASSIGN_OR_RETURN(TensorData codes, tensors.Read(blocks_key, {"U8"}, {expected}));
  GEMMD_ASSIGN_OR_RETURN(TensorData scales,
                         ReadExponents(tensors, absl::StrCat(separator, "scales"),
                                       {{tensor.shape.experts, tensor.shape.n, blocks}}));
  tensor.spec.weight = kFloat4E2M1;
  tensor.spec.scale = kFloat8E8M0;
  tensor.spec.scale_block_k = kBlock;
  tensor.scale_columns = blocks;
  tensor.codes = std::move(codes.bytes);
  tensor.scales = std::move(scales.bytes);
  const std::string& module = tensors.module();
  tensor.gate_up_interleaved =
      absl::EndsWith(module, ".gate_up_proj") || absl::EndsWith(module, ".mlp1_weight");
  GEMMD_RETURN_IF_ERROR(ReadBias(tensors, "_bias", tensor));
  return tensor;
}

absl::StatusOr<StandardTensor> ReadPlain(ModuleTensors& tensors) {
  const std::string scale_key = tensors.Find(".scale") != nullptr ? ".scale" : ".weight_scale";
  GEMMD_ASSIGN_OR_RETURN(StandardTensor tensor, ReadPlainMxfp4(tensors, ".weight", scale_key));
  GEMMD_RETURN_IF_ERROR(ReadBias(tensors, ".bias", tensor));
  return tensor;
}

absl::StatusOr<StandardTensor> Read(const Json& config, const ReadingOptions&, ModuleTensors& tensors) {
  GEMMD_ASSIGN_OR_RETURN(const std::vector<std::string> patterns,
                         StringsField(config, {"modules_to_not_convert"}));
  GEMMD_ASSIGN_OR_RETURN(const bool skipped, SkippedByPatterns(patterns, tensors.module()));
  const TensorInfo* weight = tensors.Find(".weight");
  const bool hugging_face = tensors.Find("_blocks") != nullptr;
  const bool original = tensors.Find(".blocks") != nullptr;
  const bool plain = weight != nullptr && (weight->dtype == "U8" || weight->dtype == "I8");
  GEMMD_RETURN_IF_ERROR(CheckAgreement(tensors, !skipped, hugging_face || original || plain,
                                       "tensor of blocks or 8-bit .weight"));
  if (hugging_face) return ReadExperts(tensors, "_");
  if (original) return ReadExperts(tensors, ".");
  return ReadPlain(tensors);
}

}  // namespace
}  // namespace mxfp4

CheckpointReader Mxfp4Reader() {
  return {"mxfp4", {".weight_scale", "_blocks", ".blocks", "_scales", ".scales", ".scale"}, &mxfp4::Read};
}

}  // namespace gemmd
