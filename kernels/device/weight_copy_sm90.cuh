// What    Starts the copies of the packed weights of a block's rows for one stage.
// Shapes  contract/packed_weights.h: the units of a chunk follow each other, so one bulk copy a
//         chunk.
// Sync    One thread; gives `full` one arrival and the bytes, those of other copies included.
#ifndef GEMMD_KERNELS_DEVICE_WEIGHT_COPY_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_WEIGHT_COPY_SM90_CUH_

#include "kernels/contract/gemm_args.h"
#include "kernels/device/ptx/async_copy.cuh"
#include "kernels/device/ptx/mbarrier.cuh"
#include "kernels/device/sm90_tile.cuh"

namespace gemmd::device {

template <class Config>
struct WeightCopySm90 {
  using Tile = Sm90Tile<Config>;

  const char* first;    // first unit of the block in chunk 0
  int32_t chunk_bytes;  // of all rows, in every chunk but the last
  int32_t last_chunk;
  int32_t units;
  int32_t last_unit_bytes;
  int32_t last_skip;  // bytes that the shorter units before the block's save in the last chunk
  uint64_t policy;

  // `read_once`: no other block reads these weights, so they need no place in L2.
  __device__ static WeightCopySm90 Of(const GemmArgs& args, int32_t tile, bool read_once) {
    const WeightArgs& weights = args.weights;
    const int32_t first_unit = tile * Config::kRowGroups;
    const auto all = static_cast<int32_t>(PackedLayout::Units(weights.n));
    const auto last = static_cast<int32_t>(Tile::Layout().Chunks(weights.k)) - 1;
    const int last_bytes = Tile::Layout().UnitBytes(Tile::Layout().SlabsOf(last, weights.k));
    return {static_cast<const char*>(weights.packed) +
                static_cast<int64_t>(first_unit) * Tile::kUnitBytes,
            all * Tile::kUnitBytes,
            last,
            Max<int32_t>(0, Min<int32_t>(all - first_unit, Config::kRowGroups)),
            last_bytes,
            first_unit * (Tile::kUnitBytes - last_bytes),
            read_once ? ptx::EvictFirstPolicy() : ptx::EvictNormalPolicy()};
  }

  // `other_bytes` will come to `full` from other copies.
  __device__ void Start(int32_t first_chunk, uint32_t stage, uint32_t full,
                        uint32_t other_bytes) const {
    if (units == 0) {  // a tile that only fills up its cluster
      ptx::MbarrierArriveExpect(full, other_bytes);
    } else if (first_chunk + Config::kColumnGroups <= last_chunk) {
      StartWhole(first_chunk, stage, full, other_bytes);
    } else {
      StartLast(first_chunk, stage, full, other_bytes);
    }
  }

 private:
  // The common case in few instructions: one thread's latency is the pace of the whole ring.
  __device__ void StartWhole(int32_t first_chunk, uint32_t stage, uint32_t full,
                             uint32_t other_bytes) const {
    const uint32_t bytes = units * Tile::kUnitBytes;
    const char* from = first + static_cast<int64_t>(first_chunk) * chunk_bytes;
    ptx::MbarrierArriveExpect(full, bytes * Config::kColumnGroups + other_bytes);
    GEMMD_UNROLL
    for (int c = 0; c < Config::kColumnGroups; ++c, from += chunk_bytes) {
      ptx::BulkCopy(stage + c * Tile::kChunkBytes, from, bytes, full, policy);
    }
  }

  __device__ void StartLast(int32_t first_chunk, uint32_t stage, uint32_t full,
                            uint32_t other_bytes) const {
    const int32_t whole = last_chunk - first_chunk;
    const uint32_t bytes = units * Tile::kUnitBytes;
    const uint32_t last_bytes = units * last_unit_bytes;
    ptx::MbarrierArriveExpect(full, whole * bytes + last_bytes + other_bytes);
    const char* from = first + static_cast<int64_t>(first_chunk) * chunk_bytes;
    for (int32_t c = 0; c < whole; ++c, from += chunk_bytes, stage += Tile::kChunkBytes) {
      ptx::BulkCopy(stage, from, bytes, full, policy);
    }
    ptx::BulkCopy(stage, from - last_skip, last_bytes, full, policy);
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_WEIGHT_COPY_SM90_CUH_
