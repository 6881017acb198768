// What    Which part of x a block quantizes, and which columns of it each thread holds.
// Shapes  A block has one row, or a slice of it. A slice is cut into chunks of kThreads pieces; a piece
//         is the kWidth neighbouring columns that 16 bytes of x hold. The first kHeld chunks stay in
//         registers, so x is read once where they are all; others are read again.
// Sync    None.
#ifndef GEMMD_KERNELS_DEVICE_QUANTIZE_X_TILE_CUH_
#define GEMMD_KERNELS_DEVICE_QUANTIZE_X_TILE_CUH_

#include "kernels/contract/element_type.h"
#include "kernels/contract/quantize_args.h"
#include "kernels/device/portable.cuh"

namespace gemmd::device {

template <class Config>
struct QuantizeTile {
  static constexpr bool kHasGate = Config::kActivation == InputActivation::kSiluAndMul ||
                                   Config::kActivation == InputActivation::kSwigluClamped;
  static constexpr int kWidth = 16 / ElementBytes(Config::kXType);
  static constexpr int kHeld = (kHasGate ? 16 : 32) / kWidth;
  static constexpr int kChunkColumns = Config::kThreads * kWidth;
  static_assert(ElementBytes(Config::kXType) > 1 || Config::kMode == QuantizeMode::kNone,
                "8-bit x is quantized already");
  static_assert(Config::kThreads % 32 == 0, "warps are whole");

  int64_t row;
  int32_t first;    // column of the row
  int32_t columns;  // of the slice

  __host__ __device__ static QuantizeTile Of(const QuantizeArgs& args, int64_t row, int64_t slice) {
    const int64_t first = slice * args.slice_columns;
    return {row, static_cast<int32_t>(first),
            static_cast<int32_t>(Min(args.slice_columns, args.k - first))};
  }

  __host__ __device__ int chunks() const { return (columns + kChunkColumns - 1) / kChunkColumns; }
  // Of the slice, the first of a thread's piece; past `columns` when it has none.
  __host__ __device__ static int32_t Column(int chunk, int thread) {
    return (chunk * Config::kThreads + thread) * kWidth;
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_QUANTIZE_X_TILE_CUH_
