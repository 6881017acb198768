// What    The numbers of contract/sm90_block.h for one config, and the registers of its warpgroups.
#ifndef GEMMD_KERNELS_DEVICE_SM90_TILE_CUH_
#define GEMMD_KERNELS_DEVICE_SM90_TILE_CUH_

#include "kernels/contract/quant_spec.h"
#include "kernels/contract/sm90_block.h"
#include "kernels/device/portable.cuh"

namespace gemmd::device {

template <class Config>
struct Sm90Tile {
  __host__ __device__ static constexpr PackedLayout Layout() {
    return {Config::kGroupScale.bits / 8, Config::kScaleStep,
            Config::kZeroPoint == ZeroPointKind::kInteger};
  }
  __host__ __device__ static constexpr Sm90Block Block() {
    return {Layout(), Config::kTokens, Config::kRowGroups, Config::kColumnGroups, Config::kStages};
  }
  static constexpr int kMathGroups = Block().math_groups();
  static constexpr int kMathThreads = Block().math_threads();
  static constexpr int kProducerThreads = Sm90Block::kProducerThreads;
  static constexpr int kThreads = Block().threads();
  static constexpr int kRows = Block().rows();
  static constexpr int kSlabTileBytes = Block().slab_tile_bytes();
  static constexpr int kChunkTileBytes = Block().chunk_tile_bytes();
  static constexpr int kActivationBytes = Block().activation_bytes();
  static constexpr int kUnitBytes = Layout().UnitBytes(PackedLayout::kSlabsPerChunk);
  static constexpr int kChunkBytes = Block().chunk_bytes();
  static constexpr int kWeightBytes = Block().weight_bytes();
  static constexpr int kWeightOffset = Config::kStages * kActivationBytes;
  static constexpr int kSumStride = Block().sum_stride();
  static constexpr int kSumFloats = Block().sum_floats();
  static constexpr int kBarrierOffset = Block().barrier_offset();
  static constexpr int kSharedBytes = Block().shared_bytes();

  // Registers per thread. setmaxnreg deals out what the block got at its launch, not a byte more: a
  // sum above kLaunchRegisters * kThreads would wait for ever.
  static constexpr int kLaunchRegisters = 65536 / kThreads / 8 * 8;
  static constexpr int kProducerRegisters = kMathGroups == 2 ? 40 : 32;
  static constexpr int kMathRegisters = kMathGroups == 4 ? 112 : kMathGroups == 3 ? 160 : 232;
  static_assert(kMathGroups >= 2 && kMathGroups <= 4, "2 to 4 math warpgroups");
  static_assert(kMathRegisters * kMathThreads + kProducerRegisters * kProducerThreads <=
                    kLaunchRegisters * kThreads,
                "more registers than the block is launched with");
  static_assert(kSharedBytes <= Sm90Block::kLargestSharedBytes,
                "more shared memory than a block can have");
  static_assert(kBarrierOffset % 16 == 0 && kUnitBytes % 16 == 0, "copies move 16 bytes");
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_SM90_TILE_CUH_
