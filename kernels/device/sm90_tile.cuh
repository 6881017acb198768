// What    The numbers of contract/sm90_block.h for one config, and the registers of its warpgroups.
#ifndef GEMMD_KERNELS_DEVICE_SM90_TILE_CUH_
#define GEMMD_KERNELS_DEVICE_SM90_TILE_CUH_

#include "kernels/contract/quant_spec.h"
#include "kernels/contract/sm90_block.h"
#include "kernels/contract/sm90_operand.h"
#include "kernels/device/portable.cuh"

namespace gemmd::device {

template <class Config>
struct Sm90Tile {
  static constexpr Sm90Operand Operand() { return {Config::kWeight, Config::kXType}; }
  static constexpr PackedLayout Layout() {
    return {.code_bits = Config::kWeight.bits,
            .operand_bits = Operand().bits(),
            .lane_bits = Operand().by_table() ? 4 : Operand().bits(),
            .has_signs_apart = Operand().has_signs_apart(),
            .scale_bytes = Config::kGroupScale.bits / 8,
            .scale_step = Config::kScaleStep,
            .zero_point_bytes = PackedZeroPointBytes(Config::kZeroPoint)};
  }
  // A unit in a stage.
  static constexpr PackedLayout Unit() {
    PackedLayout unit = Config::kStageSlabs == 1 ? Layout().OneSlab() : Layout();
    if (Config::kSharesScales) unit.scale_bytes = 0;  // they go with those of x
    return unit;
  }
  static constexpr Sm90Block Block() {
    return {Unit(),          Config::kTokens,    Config::kRowGroups, Config::kColumnGroups,
            Config::kStages, Config::kHasXScales};
  }
  // What sums of raised integers lack; those with floating-point zero points are decoded in float32.
  static constexpr float kSumFactor =
      Operand().is_raised() && Config::kZeroPoint != ZeroPointKind::kFloat ? 1 << -Sm90Operand::kRaisedExponent : 1;
  static constexpr int kXBytes = Operand().bits() / 8;  // of an element
  static constexpr int kChunkColumns = Unit().chunk_columns();
  static constexpr bool kIsDirect = Layout().is_direct();
  // Blocks of a cluster that copy x, or weights, for each other.
  static constexpr int kPartners = Config::kSharers * Config::kWeightSharers;
  static_assert(Config::kSharers == 1 || Config::kWeightSharers == 1, "one of the two");
  static constexpr int kMathGroups = Block().math_groups();
  static constexpr int kMathThreads = Block().math_threads();
  static constexpr int kProducerThreads = Sm90Block::kProducerThreads;
  static constexpr int kWeightThreads = 32;  // of the producers, where x is mapped
  static constexpr int kXThreads = kProducerThreads - kWeightThreads;
  static constexpr int kThreads = Block().threads();
  static constexpr int kRows = Block().rows();
  static constexpr int kSlabTileBytes = Block().slab_tile_bytes();
  static constexpr int kChunkTileBytes = Block().chunk_tile_bytes();
  static constexpr int kActivationBytes = Block().activation_bytes();
  static constexpr int kUnitBytes = Unit().whole_unit_bytes();
  static constexpr int kChunkBytes = Block().chunk_bytes();
  static constexpr int kWeightBytes = Block().weight_bytes();
  static constexpr int kWeightOffset = Block().weight_offset();
  static constexpr int kXScaleBytes = Block().x_scale_bytes();
  static constexpr int kXScaleStride = Block().x_scale_stride();
  static constexpr int kSharedScaleOffset = Block().shared_scale_offset();
  static constexpr int kXScalePlaceOffset = Block().x_scale_place_offset();
  static constexpr int kXScaleOffset = Block().x_scale_offset();
  static constexpr int kSumStride = Block().sum_stride();
  static constexpr int kSumFloats = Block().sum_floats();
  static constexpr int kBarrierOffset = Block().barrier_offset();
  static constexpr int kSharedBytes = Block().shared_bytes();

  // Registers per thread. setmaxnreg deals out what the block got at its launch, not a byte more: a
  // sum above kLaunchRegisters * kThreads would wait for ever.
  static constexpr int kLaunchRegisters = 65536 / kThreads / 8 * 8;
  static constexpr int kProducerRegisters = Block().producer_registers();
  static constexpr int kMathRegisters = Block().math_registers();
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
