// What    The layers of the quick start, with weights to compute expected results from.
// Source  tests/data/checkpoints: files written by the exporters' own code.
#ifndef GEMMD_CLIENT_EXAMPLES_MAIN_JOB_H_
#define GEMMD_CLIENT_EXAMPLES_MAIN_JOB_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/gemmctl/reference.h"

namespace gemmd::examples {

struct DenseCase {
  const char* checkpoint;
  const char* module;
  const char* label;
};

inline constexpr DenseCase kDenseCases[] = {
    {"gptq_v1_autogptq_b4_g128_sym", "model.layers.0.mlp.down_proj", "GPTQ int4"},
    {"awq_gemm_g128", "model.layers.0.self_attn.o_proj", "AWQ int4"},
    {"ct_pack_w4_g128_sym", "model.layers.0.mlp.down_proj", "compressed-tensors int4"},
    {"fp8_block128_deepseek", "model.layers.0.self_attn.o_proj", "FP8 128x128 blocks"},
    {"mxfp4_plain_uint8", "model.layers.0.mlp.experts.0.w1", "MXFP4"},
};
inline constexpr DenseCase kGateUpCase = {
    "gptoss_mxfp4_hf", "model.layers.0.mlp.experts.gate_up_proj", "MXFP4 experts, gate/up"};
inline constexpr DenseCase kDownCase = {"gptoss_mxfp4_hf", "model.layers.0.mlp.experts.down_proj",
                                        "MXFP4 experts, down"};

// Dequantized weights as the exporter's code gives them, and the bias of the checkpoint where it
// has one.
absl::StatusOr<gemmctl::DenseWeights> ExpectedWeights(const std::string& data,
                                                      const DenseCase& from);

}  // namespace gemmd::examples

#endif  // GEMMD_CLIENT_EXAMPLES_MAIN_JOB_H_
