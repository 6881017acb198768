// What    Sm90Block: threads, tile and shared memory of one block of device/gemm_sm90.cuh and
//         gemm_sm90_slab.cuh.
// Shapes  row_groups * column_groups math warpgroups: warpgroup g works on the 64 rows g %
//         row_groups of the block's rows of w, and on chunk g / row_groups of the column_groups
//         chunks of a stage; a chunk has layout.slabs slabs. Shared memory: activation stages
//         (multiples of 1024 bytes), weight stages, scales of x, then the barriers. Scales of x in a
//         stage: [column_groups][slabs][tokens] float32; with stages of one slab [tokens][4] (the
//         tensor memory accelerator copies 16 bytes at least: they serve neighbouring slabs), then 16
//         bytes that begin with the scale that all rows of w share, then an int32: where the slab's
//         scales of x are, in floats from the first stage's on.
//         After the main loop the sums [column_groups][tokens][sum_stride] float32 lie over the
//         stages.
#ifndef GEMMD_KERNELS_CONTRACT_SM90_BLOCK_H_
#define GEMMD_KERNELS_CONTRACT_SM90_BLOCK_H_

#include "kernels/contract/packed_weights.h"

namespace gemmd {

struct Sm90Block {
  static constexpr int kProducerThreads = 128;
  static constexpr int kLargestSharedBytes = 227 * 1024;
  static constexpr int kCopyAlignment = 128;  // of what the tensor memory accelerator writes

  PackedLayout layout;  // of a unit in a stage
  int tokens;           // rows of x in a tile
  int row_groups;       // units of 64 rows of w
  int column_groups;    // chunks in a stage
  int stages;
  bool has_x_scales;  // per slab

  constexpr int math_groups() const { return row_groups * column_groups; }
  constexpr int math_threads() const { return math_groups() * 128; }
  constexpr int threads() const { return math_threads() + kProducerThreads; }
  constexpr bool is_slabwise() const { return layout.slabs == 1; }  // device/gemm_sm90_slab.cuh
  // Of each thread of a math warpgroup, and of the others; together what a launch gets.
  struct Registers {
    int math;
    int producer;
  };
  constexpr Registers registers() const {
    if (math_groups() == 4) return {112, 32};
    if (math_groups() == 3) return {160, 32};
    if (is_slabwise() && tokens >= 128) return {240, 24};
    // Producers of several column groups or of stages of one slab have more to address.
    return is_slabwise() || column_groups > 1 ? Registers{216, 72} : Registers{224, 56};
  }
  constexpr int math_registers() const { return registers().math; }
  constexpr int producer_registers() const { return registers().producer; }
  constexpr int rows() const { return row_groups * PackedLayout::kUnitRows; }

  constexpr int slab_tile_bytes() const { return tokens * PackedLayout::kSlabRowBytes; }
  constexpr int chunk_tile_bytes() const { return layout.slabs * slab_tile_bytes(); }
  constexpr int activation_bytes() const { return column_groups * chunk_tile_bytes(); }
  constexpr int chunk_bytes() const { return row_groups * layout.whole_unit_bytes(); }
  constexpr int weight_bytes() const { return column_groups * chunk_bytes(); }
  constexpr int x_scale_stride() const { return is_slabwise() ? 4 : 1; }  // floats
  constexpr int shared_scale_offset() const { return tokens * x_scale_stride() * 4; }
  constexpr int x_scale_place_offset() const { return shared_scale_offset() + 16; }
  constexpr int x_scale_bytes() const {
    if (!has_x_scales) return 0;
    return is_slabwise() ? shared_scale_offset() + kCopyAlignment
                         : column_groups * layout.slabs * tokens * 4;
  }
  constexpr int weight_offset() const { return stages * activation_bytes(); }
  constexpr int x_scale_offset() const {
    const int bytes = weight_offset() + stages * weight_bytes();
    return (bytes + kCopyAlignment - 1) / kCopyAlignment * kCopyAlignment;
  }
  constexpr int stage_bytes() const { return x_scale_offset() + stages * x_scale_bytes(); }

  constexpr int sum_stride() const { return rows() + 4; }  // a warp's stores meet 32 banks
  constexpr int sum_floats() const { return tokens * sum_stride(); }
  constexpr int sum_bytes() const { return column_groups * sum_floats() * 4; }
  constexpr int barrier_offset() const {
    return stage_bytes() > sum_bytes() ? stage_bytes() : sum_bytes();
  }
  constexpr int shared_bytes() const { return barrier_offset() + (2 * stages + 1) * 8; }
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_CONTRACT_SM90_BLOCK_H_
