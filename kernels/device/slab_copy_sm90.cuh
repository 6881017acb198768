// What    Starts the copies of one slab of the packed weights of a block's rows.
// Shapes  contract/packed_weights.h: a stage holds kRowGroups units of one slab (OneSlab), cut out
//         of the units of a chunk: scales and zero points of the slab's columns, and codes. Scales
//         that all rows of a tile share go to a place of their own, once.
//         Blocks that share the tile of w (kWeightSharers) each copy every so-manieth unit to all of them.
// Sync    One thread; gives `full` one arrival and the bytes, those of other copies included.
#ifndef GEMMD_KERNELS_DEVICE_SLAB_COPY_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_SLAB_COPY_SM90_CUH_

#include "kernels/contract/gemm_args.h"
#include "kernels/device/ptx/async_copy.cuh"
#include "kernels/device/ptx/mbarrier.cuh"
#include "kernels/device/sm90_tile.cuh"
#include "kernels/device/tile_place_sm90.cuh"

namespace gemmd::device {

template <class Config>
class SlabCopySm90 {
 public:
  using Tile = Sm90Tile<Config>;
  static constexpr PackedLayout Chunk() { return Tile::Layout(); }
  static constexpr PackedLayout Unit() { return Tile::Unit(); }
  // One set for the whole chunk serves both slabs.
  static constexpr bool kSharesSet = Chunk().sets() < PackedLayout::kSlabsPerChunk;
  static constexpr int kScaleBytes = Unit().zero_point_offset() - Unit().scale_offset();
  static constexpr int kZeroPointBytes = Unit().sets() * Unit().set_bytes() - kScaleBytes;
  static constexpr int kBytes = kScaleBytes + kZeroPointBytes + Unit().slab_bytes();
  static_assert(Unit().slabs == 1, "stages of one slab");

  static constexpr int kSharedScaleBytes = Config::kSharesScales ? 16 : 0;  // of several rows, all the same

  const char* first;    // first unit of the block in chunk 0
  int64_t chunk_bytes;  // of all rows, in every chunk but the last
  int32_t last_chunk;   // when it has one slab, else a chunk that is never reached
  int32_t last_skip;    // bytes that the shorter units before the block's save in the last chunk
  int32_t units;        // none in a tile that only fills up its cluster; then `first` is the last one
  uint64_t policy;
  int sharer;      // of the blocks that share the tile of w: this one copies units sharer, sharer + kWeightSharers, ...
  uint32_t ranks;  // all of them

  // `read_once`: no other block reads these weights, so they need no place in L2.
  __device__ static SlabCopySm90 Of(const GemmArgs& args, int32_t tile, bool read_once,
                                    const ClusterPlaceSm90<Config>& place) {
    const WeightArgs& weights = args.weights;
    const auto all = static_cast<int32_t>(PackedLayout::Units(weights.n));
    const int32_t first_unit = tile * Config::kRowGroups;
    const int32_t unit = Min(first_unit, all - 1);
    const auto chunks = static_cast<int32_t>(Chunk().Chunks(weights.k));
    const bool is_whole =
        Chunk().SlabsOf(chunks - 1, weights.k) == PackedLayout::kSlabsPerChunk;
    return {static_cast<const char*>(weights.packed) + static_cast<int64_t>(unit) * kUnitBytes,
            static_cast<int64_t>(all) * kUnitBytes,
            is_whole ? chunks : chunks - 1,
            unit * (kUnitBytes - kLastUnitBytes),
            Max<int32_t>(0, Min<int32_t>(all - first_unit, Config::kRowGroups)),
            read_once ? ptx::EvictFirstPolicy() : ptx::EvictNormalPolicy(),
            Config::kWeightSharers == 1 ? 0 : static_cast<int>(place.sharer),
            ((1u << Config::kWeightSharers) - 1) << place.first_rank()};
  }

  // `other_bytes` will come to `full` from other copies. Few instructions: one thread's latency is the pace
  // of the whole ring.
  __device__ void Start(int32_t slab, uint32_t stage, uint32_t shared_scale, uint32_t full,
                        uint32_t other_bytes) const {
    ptx::MbarrierArriveExpect(full, units * kBytes + kSharedScaleBytes + other_bytes);
    const int32_t chunk = slab / PackedLayout::kSlabsPerChunk;
    const int32_t of_chunk = slab % PackedLayout::kSlabsPerChunk;
    const bool is_last = chunk == last_chunk;
    const int32_t unit_bytes = is_last ? kLastUnitBytes : kUnitBytes;
    const char* from = first + chunk * chunk_bytes - (is_last ? last_skip : 0);
    const int32_t set_of = kSharesSet ? 0 : of_chunk;
    if constexpr (kSharedScaleBytes > 0) {
      ptx::BulkCopy(shared_scale, from + set_of * kSetBytes, kSharedScaleBytes, full, policy);
    }
    GEMMD_UNROLL
    for (int u = 0; u < Config::kRowGroups; ++u, from += unit_bytes, stage += Tile::kUnitBytes) {
      if (u >= units) return;
      if (Config::kWeightSharers > 1 && u % Config::kWeightSharers != sharer) continue;
      if constexpr (kScaleBytes > 0) {
        Copy(stage + Unit().scale_offset(), from + set_of * kScaleBytes, kScaleBytes, full);
      }
      if constexpr (kZeroPointBytes > 0) {
        Copy(stage + Unit().zero_point_offset(), from + Chunk().zero_point_offset() + set_of * kZeroPointBytes,
             kZeroPointBytes, full);
      }
      Copy(stage + Unit().code_offset(), from + Chunk().code_offset() + of_chunk * Chunk().slab_bytes(),
           Chunk().slab_bytes(), full);
    }
  }

 private:
  __device__ void Copy(uint32_t to, const char* from, uint32_t bytes, uint32_t full) const {
    if constexpr (Config::kWeightSharers == 1) {
      ptx::BulkCopy(to, from, bytes, full, policy);
    } else {
      ptx::BulkCopyMulticast(to, from, bytes, full, ranks, policy);
    }
  }

  // In the packed weights.
  static constexpr int kUnitBytes = Chunk().whole_unit_bytes();
  static constexpr int kLastUnitBytes = Chunk().UnitBytes(1);
  // Scales of a slab's columns.
  static constexpr int kSetBytes = PackedLayout::kUnitRows * Chunk().scale_bytes *
                                   Max(1, Chunk().sets() / PackedLayout::kSlabsPerChunk);
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_SLAB_COPY_SM90_CUH_
