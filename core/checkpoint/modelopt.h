// What    Configs of NVIDIA ModelOpt: quantization_config of config.json, hf_quant_config.json, or
//         both, as one flat object; and the scheme of one module.
// Errors  InvalidArgument BAD_CHECKPOINT; that the two files contradict each other is said by
//         ModelOptSchemeOf.
// Source  https://github.com/NVIDIA/Model-Optimizer; layouts: README.md.
#ifndef GEMMD_CORE_CHECKPOINT_MODELOPT_H_
#define GEMMD_CORE_CHECKPOINT_MODELOPT_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/checkpoint/json.h"

namespace gemmd {

bool IsModelOptConfig(const Json& config);

// `config` is quantization_config, `file` the content of hf_quant_config.json; null when absent.
// The result has quant_method "modelopt", the keys of both, and `model_type` of config.json. The names are those of
// the files, for errors.
absl::StatusOr<Json> MergeModelOptConfig(const Json& config, const std::string& config_name,
                                         const Json& file, const std::string& file_name,
                                         const std::string& model_type);

struct ModelOptScheme {
  std::string algorithm;   // lower case: "fp8", "nvfp4", ...
  int64_t group_size = 0;  // 0 = not said
  std::string model_type;  // "llama", "gpt_oss", ...; empty = not said
};

// Columns per scale of an algorithm on e2m1 with e4m3 scales: 16, but 32 in W4A8_NVFP4_FP8 whose config
// does not say 16.
int64_t ModelOptNvfp4Block(const ModelOptScheme& scheme);

// nullopt: the config leaves `module` unquantized; with quant_algo null it does so with all (where the key-value cache
// alone is quantized). `config` is merged.
absl::StatusOr<std::optional<ModelOptScheme>> ModelOptSchemeOf(const Json& config,
                                                               const std::string& module);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_MODELOPT_H_
