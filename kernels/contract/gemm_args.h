// What    GemmArgs: the parameter of every GEMM kernel, passed by value.
// Shapes  Those of kernels/contract/quant_spec.h. Extents and strides in elements.
//           dense    row r of x gives row r of y; one expert.
//           indexed  expert e owns sorted rows [row_offsets[e], row_offsets[e+1]); sorted row r is
//           the
//                    slot s = sorted_slots[r]: it reads row s / slots_per_input_row of x and writes
//                    row s of y. Block tile t belongs to the expert e with tile_offsets[e] <= t <
//                    tile_offsets[e+1].
// Memory  Every pointer is aligned to its element only; null where the layer has no such tensor.
#ifndef GEMMD_KERNELS_CONTRACT_GEMM_ARGS_H_
#define GEMMD_KERNELS_CONTRACT_GEMM_ARGS_H_

#include <cstdint>

#include "kernels/contract/element_type.h"

namespace gemmd {

// The tensors of one layer. Constant from the load of the layer on.
struct WeightArgs {
  const uint32_t* codes;  // null where `packed` has them
  const void* scales;
  const void* zero_points;
  const float* secondary_scales;  // [E, secondary_scale_rows]; null = 1
  const int32_t* group_index;     // [E, K], the scale column of k; null = k / scale_block_k
  const void* bias;
  const float* activation_scale;  // [E], multiplies the finished sum
  int64_t row_words;              // words of 32 bits per row of codes
  int32_t experts;
  int32_t n;
  int32_t k;
  int32_t scale_rows;
  int32_t scale_columns;
  int32_t secondary_scale_rows;  // n, or 1 for one per expert
  int32_t scale_block_n;  // 1 or more; n when all rows share one scale
  int32_t scale_block_k;  // 1 or more; k when all columns share one scale
  ElementType bias_type;
  // The codes, with their scales, in the order of contract/packed_weights.h; null where `codes` has them.
  const void* packed;
  const float* channel_factor;  // [N], scales per row of w and secondary scales; null = 1
  int32_t packed_scale_bytes;   // scales and zero points of a unit of `packed`
};

// What the tensor memory accelerator needs to know about a matrix: CUtensorMap, opaque.
struct alignas(64) TensorMap {
  uint64_t words[16];
};

struct GemmArgs {
  WeightArgs weights;

  const void* x;
  void* y;
  int64_t x_row_stride;
  int64_t y_row_stride;
  int64_t m;  // rows, dense only
  ElementType x_type;
  ElementType y_type;

  // One factor per row of x on the finished sum: an activation scale, or a router weight. Null = 1.
  const float* row_scale;
  int64_t row_scale_stride;
  // One factor per row and `group_scale_columns` columns of x, applied before the product. Null
  // = 1.
  const float* group_scale;
  int64_t group_scale_stride;
  int32_t group_scale_columns;
  // 1 when the activations need two TF32 terms each (float32, or group scaled).
  int32_t split_activations;

  // Indexed rows only.
  const uint32_t* sorted_slots;
  const int64_t* row_offsets;   // [E + 1]
  const int64_t* tile_offsets;  // [E + 1]
  uint32_t slots_per_input_row;

  // x in boxes of 128 bytes by the kernel's rows; for kernels that copy x so (launch/tensor_maps.h).
  uint32_t has_x_map;
  TensorMap x_map;
  TensorMap x_scale_map;  // group_scale in boxes of 4 columns, for kernels that need x_map
  // 16-bit y of whole 16 bytes a row in boxes of 64 columns by the kernel's rows of x, for kernels that store it so.
  uint32_t has_y_map;
  TensorMap y_map;
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_CONTRACT_GEMM_ARGS_H_
