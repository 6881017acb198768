// What    Starts the copies of one slab of the packed weights of a block's rows.
// Shapes  contract/packed_weights.h: a stage holds kRowGroups units of one slab (OneSlab), cut out
//         of the units of a chunk: scales and zero points of the slab's columns, then codes.
//         Scales that the rows of a tile share stay behind (ScaleProductSm90).
// Sync    One thread; gives `full` one arrival and the bytes, those of other copies included.
#ifndef GEMMD_KERNELS_DEVICE_SLAB_COPY_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_SLAB_COPY_SM90_CUH_

#include "kernels/contract/gemm_args.h"
#include "kernels/device/ptx/async_copy.cuh"
#include "kernels/device/ptx/mbarrier.cuh"
#include "kernels/device/sm90_tile.cuh"

namespace gemmd::device {

template <class Config>
struct SlabCopySm90 {
  using Tile = Sm90Tile<Config>;
  static constexpr PackedLayout Chunk() { return Tile::Layout(); }
  static constexpr PackedLayout Unit() { return Tile::Unit(); }
  // One set for the whole chunk serves both slabs.
  static constexpr bool kSharesSet = Chunk().sets() < PackedLayout::kSlabsPerChunk;
  static constexpr int kScaleBytes = Config::kSharesScales ? 0 : Unit().zero_point_offset();
  static constexpr int kBytes =
      Tile::kUnitBytes - (Config::kSharesScales ? Unit().zero_point_offset() : 0);
  static constexpr int kZeroPointBytes = Unit().code_offset() - Unit().zero_point_offset();
  static_assert(Unit().slabs == 1, "stages of one slab");

  const char* packed;
  int32_t n;
  int32_t k;
  int32_t first_unit;
  int32_t units;
  uint64_t policy;

  __device__ static SlabCopySm90 Of(const GemmArgs& args, int32_t tile, bool read_once) {
    const WeightArgs& weights = args.weights;
    const int32_t first_unit = tile * Config::kRowGroups;
    const auto all = static_cast<int32_t>(PackedLayout::Units(weights.n));
    return {static_cast<const char*>(weights.packed),
            weights.n,
            weights.k,
            first_unit,
            Max<int32_t>(0, Min<int32_t>(all - first_unit, Config::kRowGroups)),
            read_once ? ptx::EvictFirstPolicy() : ptx::EvictNormalPolicy()};
  }

  // `other_bytes` will come to `full` from other copies.
  __device__ void Start(int32_t slab, uint32_t stage, uint32_t full, uint32_t other_bytes) const {
    ptx::MbarrierArriveExpect(full, units * kBytes + other_bytes);
    const int32_t chunk = slab / PackedLayout::kSlabsPerChunk;
    const int32_t of_chunk = slab % PackedLayout::kSlabsPerChunk;
    const int32_t unit_bytes = Chunk().UnitBytes(Chunk().SlabsOf(chunk, k));
    const char* from = packed + Chunk().UnitOffset(chunk, first_unit, n, k);
    const int32_t set_of = kSharesSet ? 0 : of_chunk;
    GEMMD_UNROLL
    for (int u = 0; u < Config::kRowGroups; ++u, from += unit_bytes, stage += Tile::kUnitBytes) {
      if (u >= units) return;
      if constexpr (kScaleBytes > 0) {
        ptx::BulkCopy(stage, from + set_of * kScaleBytes, kScaleBytes, full, policy);
      }
      if constexpr (kZeroPointBytes > 0) {
        ptx::BulkCopy(stage + Unit().zero_point_offset(),
                      from + Chunk().zero_point_offset() + set_of * kZeroPointBytes,
                      kZeroPointBytes, full, policy);
      }
      ptx::BulkCopy(stage + Unit().code_offset(),
                    from + Chunk().code_offset() + of_chunk * Chunk().slab_bytes(),
                    Chunk().slab_bytes(), full, policy);
    }
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_SLAB_COPY_SM90_CUH_
