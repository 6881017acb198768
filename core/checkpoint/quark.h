// What    Configs of AMD Quark: the scheme of one module.
// Errors  InvalidArgument BAD_CHECKPOINT; Unimplemented UNSUPPORTED_FORMAT.
// Source  https://github.com/amd/Quark (quark/torch/export, quark/torch/utils/pack.py); layouts: README.md.
#ifndef GEMMD_CORE_CHECKPOINT_QUARK_H_
#define GEMMD_CORE_CHECKPOINT_QUARK_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/checkpoint/json.h"
#include "kernels/contract/number_format.h"

namespace gemmd {

// How the numbers of one tensor are quantized.
struct QuarkSpec {
  std::string dtype;         // fp8_e4m3, int8, int4, uint4, fp4, ...
  std::string scheme;        // per_tensor, per_channel, per_group, per_block
  std::string scale_format;  // "e8m0"; others: a float
  int64_t axis = 0;
  int64_t group = 0;
  int64_t block_n = 0;
  int64_t block_k = 0;
  bool symmetric = true;
  bool dynamic = false;
};

struct QuarkScheme {
  QuarkSpec weight;
  bool scale_below_factor =
      false;  // e4m3 scales of the weight's groups below .weight_scale_2 (NVFP4)
  std::optional<QuarkSpec> input;
  bool input_below_factor = false;  // the same of the activations, below .input_scale_2
  bool reordered = true;            // words of 4-bit codes in the order 0 2 4 6 1 3 5 7
  bool has_cache_scales = false;    // .output_scale of the key-value cache beside projections
};

// nullopt: the config leaves `module` unquantized.
absl::StatusOr<std::optional<QuarkScheme>> QuarkSchemeOf(const Json& config,
                                                         const std::string& module);

// kNoFormat for a type that is not read.
NumberFormat QuarkFormat(const std::string& dtype);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_QUARK_H_
