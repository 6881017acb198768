// What    What config.json says of the model, as far as it tells whether the files hold all of it, and where it says how
//         the model is quantized. Models nest these keys (text_config, thinker_config.text_config): every object counts, but not
//         those of the quantization.
// Errors  InvalidArgument BAD_CHECKPOINT, also for counts that are none (null counts as 0), and for two places that say
//         different things of the quantization.
// Threads Pure functions.
#ifndef GEMMD_CORE_CHECKPOINT_MODEL_FACTS_H_
#define GEMMD_CORE_CHECKPOINT_MODEL_FACTS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/json.h"

namespace gemmd {

struct ModelFacts {
  struct ExpertCount {
    std::string key;  // "text_config.num_experts"
    int64_t count;
  };
  // Of the language model's own layers.
  struct LayerCount {
    std::string key;  // "text_config.num_hidden_layers"
    int64_t count;
    std::set<int64_t> empty_layers;  // neither attention nor MLP (block_configs)
  };
  // Not those of other encoders (vision_config), nor where layers share their weights (num_hidden_groups).
  std::vector<LayerCount> layer_counts;
  // Of a list, one count per layer or per kind of expert, each of its numbers and their sum.
  std::vector<ExpertCount> expert_counts;
  // Layers below this one have key and value projections of their own, later ones take those of an earlier layer
  // (num_kv_shared_layers). nullopt: all have their own.
  std::optional<int64_t> first_shared_kv_layer;
  bool cross_layer_kv =
      false;  // some take them from an earlier layer, the config does not say which (use_cla)
  bool key_is_value =
      false;  // some have one projection for key and value, k_proj (attention_k_eq_v)
  std::vector<std::string> layer_types;  // of each layer of the language model; empty: not said
  bool leaves_parts_out = false;         // of single layers (block_configs)
  // Of the model as a whole and of its language model.
  std::vector<std::string> model_types;    // "llama4", "llama4_text"
  std::vector<std::string> architectures;  // "Llama4ForConditionalGeneration"
  std::vector<int64_t> hidden_sizes;
  std::vector<int64_t> mlp_sizes;  // intermediate_size: of experts too where expert_sizes is empty
  std::vector<int64_t> expert_sizes;  // moe_intermediate_size
};

absl::StatusOr<ModelFacts> ReadModelFacts(const Json& config);

// How the model is quantized: "quantization_config", without it "compression_config" of older compressed-tensors, at the
// top or in a part for text (text_config, thinker_config.text_config ...); null and {} are none. The outermost of all there
// are, which must be equal; nullptr: there is none.
absl::StatusOr<const Json*> FindQuantizationConfig(const Json& config);

// Whether `count` experts, those of `module`, are as many as the config names. OK where it names none. The caller knows
// that not every token goes through them.
absl::Status CheckExpertCount(const ModelFacts& facts, const std::string& module, int64_t count);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_MODEL_FACTS_H_
