// What    Sizes of one block tile, and the layout of an operand tile in shared memory.
// Shapes  An operand tile is [rows][kBlockK] float32 with kPadding unused floats after each row.
//         With kBlockK = 32 a row starts 4 banks after the one before: the 32 lanes of an MMA
//         fragment (8 rows, 4 columns) read 32 different banks.
#ifndef GEMMD_KERNELS_DEVICE_BLOCK_TILE_CUH_
#define GEMMD_KERNELS_DEVICE_BLOCK_TILE_CUH_

#include "kernels/contract/row_mapping.h"
#include "kernels/device/portable.cuh"

namespace gemmd::device {

template <class Config>
struct BlockTile {
  static constexpr int kThreads = Config::kWarpsM * Config::kWarpsN * 32;
  static constexpr int kPadding = 4;
  static constexpr int kRowFloats = Config::kBlockK + kPadding;
  static constexpr int kRowsPerPass = kThreads / Config::kBlockK;  // rows the block fills at once
  static constexpr int kActivationFloats = Config::kBlockM * kRowFloats;
  static constexpr int kWeightFloats = Config::kBlockN * kRowFloats;

  static_assert(kThreads % Config::kBlockK == 0, "a thread must keep its column of K");
  static_assert(Config::kBlockM % kRowsPerPass == 0,
                "rows of x must divide evenly over the passes");
  static_assert(Config::kBlockN % kRowsPerPass == 0,
                "rows of w must divide evenly over the passes");

  // Column and first row that `thread` fills; it goes on kRowsPerPass rows further.
  __host__ __device__ static int FillColumn(int thread) { return thread % Config::kBlockK; }
  __host__ __device__ static int FillRow(int thread) { return thread / Config::kBlockK; }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_BLOCK_TILE_CUH_
