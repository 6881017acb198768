// What    Copies the columns of one stage of the activation rows of a tile into shared memory.
// Shapes  Stage: [chunk][2 slabs of 64 columns][kTokens rows][128 bytes], 16-byte vector v of row r
//         at v ^ (r % 8): the layout of ptx::SwizzledTileDescriptor. Rows and columns outside x are
//         zeros.
// Sync    Each producer thread gives `full` one arrival.
#ifndef GEMMD_KERNELS_DEVICE_ACTIVATION_TILE_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_ACTIVATION_TILE_SM90_CUH_

#include "kernels/contract/gemm_args.h"
#include "kernels/device/ptx/async_copy.cuh"
#include "kernels/device/ptx/mbarrier.cuh"
#include "kernels/device/sm90_tile.cuh"

namespace gemmd::device {

template <class Config>
struct ActivationTileSm90 {
  using Tile = Sm90Tile<Config>;
  static constexpr int kVectorElements = 8;
  static constexpr int kVectorsPerRow = PackedLayout::kChunkColumns / kVectorElements;
  static constexpr int kRowsPerPass = 8;  // so that a thread's place in the swizzle stays the same
  static_assert(kVectorsPerRow * kRowsPerPass == Tile::kProducerThreads, "one vector a thread");

  const uint16_t* x;         // the thread's first vector of chunk 0
  const uint16_t* anywhere;  // in x: where copies of no element point
  int64_t pass_stride;
  int rows;         // of the tile, from the thread's first row on
  int32_t columns;  // of x, from the thread's vector on
  uint32_t stage_offset;
  bool is_aligned;  // every row starts at a multiple of 16 bytes

  __device__ static ActivationTileSm90 Of(const GemmArgs& args, int64_t first_row, int thread) {
    const auto* x = static_cast<const uint16_t*>(args.x) + first_row * args.x_row_stride;
    const uint64_t bits =
        reinterpret_cast<uint64_t>(x) | static_cast<uint64_t>(args.x_row_stride) * 2;
    const int vector = thread % kVectorsPerRow;
    const int row = thread / kVectorsPerRow;
    const int64_t left = Min<int64_t>(args.m - first_row, Config::kTokens);
    return {x + row * args.x_row_stride + vector * kVectorElements,
            x,
            args.x_row_stride * kRowsPerPass,
            static_cast<int>(left) - row,
            args.weights.k - vector * kVectorElements,
            static_cast<uint32_t>(vector / 8 * Tile::kSlabTileBytes + row * 128 +
                                  ((vector % 8 ^ row) << 4)),
            (bits & 15) == 0};
  }

  __device__ void Load(int32_t first_chunk, uint32_t stage, uint32_t full) const {
    if (is_aligned) {
      ForEachVector(first_chunk, stage, [](uint32_t to, const uint16_t* from, int count) {
        ptx::Copy16(to, from, count * 2);
      });
      ptx::MbarrierArriveAfterCopies(full);
    } else {
      ForEachVector(first_chunk, stage, StoreElements);
      ptx::AsyncProxyFence();
      ptx::MbarrierArrive(full);
    }
  }

 private:
  // copy(to, from, count): `count` elements are inside x, the others become zeros.
  template <typename Copy>
  __device__ void ForEachVector(int32_t first_chunk, uint32_t stage, Copy copy) const {
    uint32_t to = stage + stage_offset;
    GEMMD_UNROLL
    for (int c = 0; c < Config::kColumnGroups; ++c, to += Tile::kChunkTileBytes) {
      const int32_t first_column = (first_chunk + c) * PackedLayout::kChunkColumns;
      const int32_t left = Min<int32_t>(columns - first_column, kVectorElements);
      const uint16_t* from = x + first_column;
      GEMMD_UNROLL
      for (int row = 0; row < Config::kTokens; row += kRowsPerPass) {
        const bool is_inside = left > 0 && row < rows;
        copy(to + row * 128, is_inside ? from : anywhere, is_inside ? left : 0);
        from += pass_stride;
      }
    }
  }

  __device__ static void StoreElements(uint32_t to, const uint16_t* from, int count) {
    uint32_t words[4] = {};
    GEMMD_UNROLL
    for (int i = 0; i < kVectorElements; ++i) {
      if (i < count) words[i / 2] |= static_cast<uint32_t>(from[i]) << (i % 2 * 16);
    }
    ptx::StoreShared16(to, words);
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_ACTIVATION_TILE_SM90_CUH_
