// What    QuantizeArgs: the parameter of the kernels that quantize x, passed by value, and the words of
//         their configs.
// Shapes  h [M, K] is x, or what the activation function makes of it, transformed by Hadamard blocks
//         where the config has them; scale = largest |h| of the row or group / largest finite value
//         of the code type, and 1 where everything is 0; code = h / scale in float32, to nearest even,
//         saturating.
// Units   Extents and strides in elements.
// Memory  x is aligned to its element. Rows of codes start at multiples of 16 bytes.
#ifndef GEMMD_KERNELS_CONTRACT_QUANTIZE_ARGS_H_
#define GEMMD_KERNELS_CONTRACT_QUANTIZE_ARGS_H_

#include <cstdint>

namespace gemmd {

// Which elements share a scale.
enum class QuantizeMode : uint32_t { kStaticTensor, kDynamicToken, kDynamicGroup };

// What comes before quantization. With a gate x is [M, 2K].
enum class InputActivation : uint32_t { kNone, kSiluAndMul, kSwigluClamped, kReluSquared };

struct QuantizeArgs {
  const void* x;
  void* codes;                // [M, K], 8 bits each
  float* scales;              // [M, groups]; not written with a static scale
  const float* static_scale;  // [1]; read with a static scale only
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
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_CONTRACT_QUANTIZE_ARGS_H_
