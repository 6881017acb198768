// What    QuantizeArgs: the parameter of the kernels that quantize x, or only multiply it, passed by value,
//         and the words of their configs.
// Shapes  h [M, K] is x, or what the activation function makes of it; where the config says so times the
//         factor of its column (one rounding in float32), then transformed by Hadamard blocks;
//         scale = largest |h| of the row or group / largest finite value of the code type, and 1 where
//         everything is 0; code = h / scale in float32, to nearest even, saturating. Without quantization
//         the code is h, rounded once more to the code type, and there is no scale.
//         With routing, rows are the slots of a mixture of experts: row s is made of row
//         s / slots_per_x_row of x with the factors of the slot's expert; absent slots are skipped.
// Units   Extents and strides in elements.
// Memory  x is aligned to its element. Rows of codes start at multiples of 16 bytes.
#ifndef GEMMD_KERNELS_CONTRACT_QUANTIZE_ARGS_H_
#define GEMMD_KERNELS_CONTRACT_QUANTIZE_ARGS_H_

#include <cstdint>

#include "kernels/contract/moe_args.h"

namespace gemmd {

// Which elements share a scale.
enum class QuantizeMode : uint32_t {
  kStaticTensor,
  kDynamicToken,
  kDynamicGroup,
  kNone,  // codes are float32, float16 or bfloat16
};

constexpr bool HasDynamicScales(QuantizeMode mode) {
  return mode == QuantizeMode::kDynamicToken || mode == QuantizeMode::kDynamicGroup;
}

// Columns of the blocks that are transformed by themselves: powers of two that divide K.
constexpr int64_t kLeastHadamardBlock = 2;
constexpr int64_t kLargestHadamardBlock = 1024;

constexpr bool IsHadamardBlock(int64_t block) {
  return block >= kLeastHadamardBlock && block <= kLargestHadamardBlock && (block & (block - 1)) == 0;
}

// What comes before quantization. With a gate x is [M, 2K].
enum class InputActivation : uint32_t { kNone, kSiluAndMul, kSwigluClamped, kReluSquared };

struct QuantizeArgs {
  const void* x;
  void* codes;                // [M, K]
  float* scales;              // [M, groups]; written with dynamic scales only
  const float* static_scale;  // [1]; read with a static scale only
  const float* input_scale;   // [K], with routing [E, K]; read where the config multiplies
  int64_t x_row_stride;
  int64_t codes_row_stride;
  int64_t scales_row_stride;
  int64_t m;
  int64_t k;
  int64_t group;  // columns per scale, a multiple of the config's unit; read with groups only
  int64_t slice_columns;  // of a row, per block: k, or a multiple of `group`
  // Of the activation function.
  int32_t interleaved;  // gate and up alternate; otherwise all gates, then all ups
  int32_t has_limit;
  float alpha;
  float limit;
  // Of slots; read where the config multiplies.
  int32_t slots_per_x_row;
  int64_t input_scale_row_stride;  // 0: all experts have the same factors
  RoutingArgs routing;             // null topk_ids: rows are no slots
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_CONTRACT_QUANTIZE_ARGS_H_
