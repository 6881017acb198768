// What    Copies the columns of one stage of the activation rows of a tile into shared memory.
// Shapes  Stage: [chunk][2 slabs of 128 bytes a row][kTokens rows][128 bytes], 16-byte vector v of
//         row r at v ^ (r % 8): the layout of ptx::SwizzledTileDescriptor. Scales of x:
//         contract/sm90_block.h. Rows and columns outside x are zeros.
// Sync    MappedActivationsSm90, MappedXScalesSm90: one thread; bytes only, no arrival. ActivationTileSm90: each
//         producer thread gives `full` one arrival.
#ifndef GEMMD_KERNELS_DEVICE_ACTIVATION_TILE_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_ACTIVATION_TILE_SM90_CUH_

#include "kernels/contract/gemm_args.h"
#include "kernels/device/decode_number.cuh"
#include "kernels/device/ptx/async_copy.cuh"
#include "kernels/device/ptx/mbarrier.cuh"
#include "kernels/device/ptx/tensor_copy.cuh"
#include "kernels/device/sm90_tile.cuh"
#include "kernels/device/stage_ring_sm90.cuh"
#include "kernels/device/tile_place_sm90.cuh"

namespace gemmd::device {

// The blocks of a cluster that work on the same rows of x and the same columns: `sharers` of them, each
// copies its part of the rows to all.
template <class Config>
struct SharersSm90 {
  uint32_t first_rank;
  uint32_t index;  // of this block

  __device__ static SharersSm90 Of(const ClusterPlaceSm90<Config>& place) {
    return {place.first_rank(), place.sharer % Config::kSharers};
  }
  __device__ uint32_t ranks() const { return ((1u << Config::kSharers) - 1) << first_rank; }
};

// By the tensor memory accelerator.
template <class Config>
struct MappedActivationsSm90 {
  using Tile = Sm90Tile<Config>;
  static constexpr int kRows = Config::kTokens / Config::kSharers;
  static constexpr uint32_t kBytes = Tile::kActivationBytes;  // that come to each block
  static_assert(kRows % 8 == 0, "a part is whole swizzle atoms");

  const TensorMap* map;
  int32_t first_row;  // of this block's part
  SharersSm90<Config> sharers;

  __device__ static MappedActivationsSm90 Of(const GemmArgs& args, int64_t first_token,
                                             const SharersSm90<Config>& sharers) {
    return {&args.x_map,
            static_cast<int32_t>(first_token) + static_cast<int32_t>(sharers.index) * kRows,
            sharers};
  }

  __device__ void Start(int32_t first_chunk, uint32_t stage, uint32_t full) const {
    uint32_t to = stage + sharers.index * (kRows * PackedLayout::kSlabRowBytes);
    int32_t column = first_chunk * Tile::kChunkColumns;
    GEMMD_UNROLL
    for (int slab = 0; slab < Config::kColumnGroups * Tile::Unit().slabs; ++slab) {
      if constexpr (Config::kSharers == 1) {
        ptx::TensorCopy2d(to, map, column, first_row, full);
      } else {
        ptx::TensorCopy2dMulticast(to, map, column, first_row, full, sharers.ranks());
      }
      to += Tile::kSlabTileBytes;
      column += Tile::Layout().slab_columns();
    }
  }
};

// By the threads, 16 bytes each: any alignment.
template <class Config>
struct ActivationTileSm90 {
  using Tile = Sm90Tile<Config>;
  static constexpr int kVectorBytes = 16;
  static constexpr int kChunkRowBytes = PackedLayout::kSlabsPerChunk * PackedLayout::kSlabRowBytes;
  static constexpr int kVectorsPerRow = kChunkRowBytes / kVectorBytes;
  static constexpr int kRowsPerPass = Tile::kProducerThreads / kVectorsPerRow;
  static_assert(kRowsPerPass == 8 && Config::kTokens % kRowsPerPass == 0,
                "a thread's swizzle is the same in every pass");

  const char* x;         // of the thread's first row and vector
  const char* anywhere;  // in x: where copies of no element point
  int64_t pass_stride;   // bytes
  int rows;              // of the tile, from the thread's first row on
  int32_t row_bytes;     // of x, from the thread's vector on
  uint32_t stage_offset;
  bool is_aligned;  // every row starts at a multiple of 16 bytes

  __device__ static ActivationTileSm90 Of(const GemmArgs& args, int64_t first_row, int thread) {
    const int64_t stride = args.x_row_stride * Tile::kXBytes;
    const char* x = static_cast<const char*>(args.x) + first_row * stride;
    const uint64_t bits = reinterpret_cast<uint64_t>(x) | static_cast<uint64_t>(stride);
    const int vector = thread % kVectorsPerRow;
    const int row = thread / kVectorsPerRow;
    const int64_t left = Min<int64_t>(args.m - first_row, Config::kTokens);
    return {x + row * stride + vector * kVectorBytes,
            x,
            stride * kRowsPerPass,
            static_cast<int>(left) - row,
            args.weights.k * Tile::kXBytes - vector * kVectorBytes,
            static_cast<uint32_t>(vector / 8 * Tile::kSlabTileBytes + row * 128 +
                                  ((vector % 8 ^ row) << 4)),
            (bits & 15) == 0};
  }

  __device__ void Load(int32_t first_chunk, uint32_t stage, uint32_t full) const {
    if (is_aligned) {
      GEMMD_UNROLL
      for (int c = 0; c < Config::kColumnGroups; ++c) {
        const Vectors vectors = VectorsOf(first_chunk, stage, c);
        GEMMD_UNROLL
        for (int i = 0; i < kPasses; ++i) {
          ptx::Copy16(vectors.to(i), vectors.from(i), vectors.bytes(i));
        }
      }
      ptx::MbarrierArriveAfterCopies(full);
    } else {
      GEMMD_UNROLL
      for (int c = 0; c < Config::kColumnGroups; ++c) {
        const Vectors vectors = VectorsOf(first_chunk, stage, c);
        GEMMD_UNROLL_BY_4  // enough loads at once; more code is much for the compiler
        for (int i = 0; i < kPasses; ++i) {
          StoreElements(vectors.to(i), vectors.from(i), vectors.bytes(i));
        }
      }
      ptx::AsyncProxyFence();
      ptx::MbarrierArriveAfterCopies(full);  // the scales' copies
    }
  }

 private:
  static constexpr int kPasses = Config::kTokens / kRowsPerPass;

  // The thread's vectors of one chunk, a row each: `bytes` bytes are inside x, the others become zeros.
  struct Vectors {
    const char* first;
    const char* anywhere;
    int64_t pass_stride;
    uint32_t stage;
    int32_t left;  // bytes of x from the vector on, at most its size
    int rows;

    __device__ bool IsInside(int pass) const { return left > 0 && pass * kRowsPerPass < rows; }
    __device__ uint32_t to(int pass) const { return stage + pass * (kRowsPerPass * 128); }
    __device__ const char* from(int pass) const {
      return IsInside(pass) ? first + pass * pass_stride : anywhere;
    }
    __device__ int bytes(int pass) const { return IsInside(pass) ? left : 0; }
  };
  __device__ Vectors VectorsOf(int32_t first_chunk, uint32_t to, int group) const {
    const int32_t first_byte = (first_chunk + group) * kChunkRowBytes;
    return {x + first_byte,
            anywhere,
            pass_stride,
            to + stage_offset + group * Tile::kChunkTileBytes,
            Min<int32_t>(row_bytes - first_byte, kVectorBytes),
            rows};
  }

  __device__ static void StoreElements(uint32_t to, const char* from, int bytes) {
    uint32_t words[4] = {};
    GEMMD_UNROLL
    for (int i = 0; i < kVectorBytes; i += Tile::kXBytes) {
      if (i < bytes) words[i / 4] |= Element(from + i) << (i % 4 * 8);
    }
    ptx::StoreShared16(to, words);
  }
  __device__ static uint32_t Element(const char* from) {
    if constexpr (Tile::kXBytes == 2) {
      return *reinterpret_cast<const uint16_t*>(from);
    } else {
      return *reinterpret_cast<const uint8_t*>(from);
    }
  }
};

// Scales of x per row and 128 columns, or multiples of them, by the threads.
template <class Config>
struct XScaleTileSm90 {
  using Tile = Sm90Tile<Config>;
  static constexpr int kSlabs = Tile::Unit().slabs;
  static constexpr int kSlabColumns = Tile::Layout().slab_columns();

  const float* scales;  // of the tile's first row
  int64_t row_stride;
  int32_t slabs_per_scale;
  int32_t slabs;  // that K reaches
  int rows;

  __device__ static XScaleTileSm90 Of(const GemmArgs& args, int64_t first_row) {
    return {args.group_scale + first_row * args.group_scale_stride, args.group_scale_stride,
            args.group_scale_columns / kSlabColumns,
            (args.weights.k + kSlabColumns - 1) / kSlabColumns,
            static_cast<int>(Min<int64_t>(args.m - first_row, Config::kTokens))};
  }

  // By `threads` threads. The thread's arrival must come after these copies.
  __device__ void Load(int32_t first_chunk, uint32_t stage, int thread, int threads) const {
    constexpr int kCount = Config::kColumnGroups * kSlabs * Config::kTokens;
    GEMMD_UNROLL
    for (int first = 0; first < kCount; first += threads) {
      const int i = first + thread;
      if (i >= kCount) return;
      const int row = i % Config::kTokens;
      const int32_t slab = first_chunk * kSlabs + i / Config::kTokens;
      const bool is_inside = row < rows && slab < slabs;
      const float* from = is_inside ? scales + row * row_stride + slab / slabs_per_scale : scales;
      ptx::Copy4(stage + i * 4, from, is_inside ? 4 : 0);
    }
  }
};

// The same for stages of one slab, by the tensor memory accelerator, which reads of a row 16 bytes from a
// multiple of 16 bytes on: neighbouring slabs share a tile. There are as many tiles as stages, so that one
// is not copied to again before the stages of its slabs are.
template <class Config>
class MappedXScalesSm90 {
 public:
  using Tile = Sm90Tile<Config>;

  // Of a tile of x. `tile`: the last one of scales that was copied to.
  __device__ MappedXScalesSm90(const GemmArgs& args, int64_t first_token,
                               const SharersSm90<Config>& sharers, int tile)
      : map_(&args.x_scale_map),
        first_row_(static_cast<int32_t>(first_token) + static_cast<int32_t>(sharers.index) * kRows),
        slabs_per_scale_(
            Config::kHasXScales ? args.group_scale_columns / Tile::Unit().slab_columns() : 1),
        sharers_(sharers),
        tile_(tile) {}

  __device__ int tile() const { return tile_; }
  // What Start copies, to each block.
  __device__ uint32_t bytes() const { return is_new_ ? Config::kTokens * kRowBytes : 0; }
  // The slab's scales, StageRingSm90::x_scale_place().
  __device__ int32_t place() const { return tile_ * (Tile::kXScaleBytes / 4) + column_of_tile_; }

  // Slabs come in ascending order.
  __device__ void MoveTo(int32_t slab) {
    const int32_t column = slabs_per_scale_ == 1 ? slab : slab / slabs_per_scale_;
    column_of_tile_ = column % kColumns;
    is_new_ = column - column_of_tile_ != first_column_;
    first_column_ = column - column_of_tile_;
    if (is_new_ && ++tile_ == Config::kStages) tile_ = 0;
  }

  __device__ void Start(const StageRingSm90<Config>& ring) const {
    if (!is_new_) return;
    const uint32_t to = ring.x_scale_tile(tile_) + sharers_.index * (kRows * kRowBytes);
    if constexpr (Config::kSharers == 1) {
      ptx::TensorCopy2d(to, map_, first_column_, first_row_, ring.full());
    } else {
      ptx::TensorCopy2dMulticast(to, map_, first_column_, first_row_, ring.full(),
                                 sharers_.ranks());
    }
  }

 private:
  static constexpr int kRows = Config::kTokens / Config::kSharers;
  static constexpr int kColumns = Tile::kXScaleStride;
  static constexpr int kRowBytes = kColumns * 4;

  const TensorMap* map_;
  int32_t first_row_;  // of this block's part
  int32_t slabs_per_scale_;
  SharersSm90<Config> sharers_;
  int tile_;
  int32_t first_column_ = -1;
  int32_t column_of_tile_ = 0;
  bool is_new_ = false;
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_ACTIVATION_TILE_SM90_CUH_
