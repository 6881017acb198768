// What    compressed-tensors: one config group, parsed, and the readers of its storage formats.
// Errors  InvalidArgument BAD_CHECKPOINT; Unimplemented UNSUPPORTED_FORMAT naming the format.
// Source  https://github.com/vllm-project/compressed-tensors; layouts: README.md.
#ifndef GEMMD_CORE_CHECKPOINT_COMPRESSED_TENSORS_H_
#define GEMMD_CORE_CHECKPOINT_COMPRESSED_TENSORS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/checkpoint/compressed_version.h"
#include "core/checkpoint/json.h"
#include "core/checkpoint/module_tensors.h"
#include "core/quant/standard_tensor.h"

namespace gemmd {

struct CompressedScheme {
  std::string format;    // pack-quantized, int-quantized, ...
  std::string strategy;  // tensor, channel, group, block, tensor_group
  std::string type;      // int, float
  int bits = 8;
  bool symmetric = true;
  bool activation_order = false;  // weight_g_idx gives the group of each column
  int64_t group_size = 0;
  int64_t block_n = 0;
  int64_t block_k = 0;
  CompressedVersion version;  // of the library that wrote the file
  // Activations. kNoFormat: not quantized.
  NumberFormat activation;
  ActivationScaleKind activation_scale = ActivationScaleKind::kNone;
  int64_t activation_group = 0;
  bool activation_symmetric = true;
  bool activation_global_scale = false;  // e4m3 group scales below .input_global_scale
  bool activation_exponents = false;     // e8m0 group scales
};

// `config` is quantization_config, `group` one of its config_groups.
absl::StatusOr<CompressedScheme> ParseCompressedScheme(const Json& config, const Json& group);

// Sets the scale blocks and scale_columns of `tensor`, whose shape is known, and returns the shapes
// the scales of this scheme may have. `stacked`: a 3-D stack of experts.
absl::StatusOr<std::vector<Shape>> ScaleShapes(const CompressedScheme& scheme,
                                               const ModuleTensors& tensors, bool stacked,
                                               StandardTensor& tensor);

// What these shapes follow from: "num_bits 4, strategy group, group_size 32".
std::string DescribeScales(const CompressedScheme& scheme);

// pack-quantized: integers of 1 to 8 bits in 32-bit words.
absl::StatusOr<StandardTensor> ReadPackedIntegers(const CompressedScheme& scheme,
                                                  ModuleTensors& tensors);
// int-quantized, float-quantized, naive-quantized, mxfp8-quantized: one byte per weight.
absl::StatusOr<StandardTensor> ReadByteWeights(const CompressedScheme& scheme,
                                               ModuleTensors& tensors);
// nvfp4-pack-quantized, mxfp4-pack-quantized: two e2m1 codes to a byte.
absl::StatusOr<StandardTensor> ReadPackedFloats(const CompressedScheme& scheme,
                                                ModuleTensors& tensors);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_COMPRESSED_TENSORS_H_
