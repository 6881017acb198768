// What    16-bit y of a tile in shared memory, for the copies of store_warp_sm90.cuh: where x of the last two
//         stages of the tile was.
// Shapes  For each of the kRowGroups units of 64 rows of w [kTokens][64], swizzled over 128 bytes as a box of
//         GemmArgs::y_map is; unit 0 in the last stage, unit 1 in the stage before it.
// Sync    None. Written by the math warps, once all of them have read both stages.
#ifndef GEMMD_KERNELS_DEVICE_Y_STAGE_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_Y_STAGE_SM90_CUH_

#include "kernels/contract/gemm_args.h"
#include "kernels/device/matrix_step_sm90.cuh"
#include "kernels/device/stage_ring_sm90.cuh"

namespace gemmd::device {

template <class Config>
class YStageSm90 {
 public:
  using Tile = Sm90Tile<Config>;
  using Ring = StageRingSm90<Config>;
  static constexpr int kUnits = Config::kRowGroups;
  static constexpr int kPitch = PackedLayout::kUnitRows * 2;  // bytes of a row of y
  // Whether tiles are stored so at all. Those of TokenStoreSm90 are written in whole rows anyway: no gain.
  static constexpr bool kIsUsed = Config::kStageSlabs == 1 && !Config::kSplitsK &&
                                  !MatrixStepSm90<Config>::kPromotesByToken;
  static_assert(!kIsUsed || kUnits <= 2, "a place for each unit");
  // Stages of a tile that its products do not give back.
  static constexpr int kKeptStages = kIsUsed ? kUnits : 1;
  static_assert(!kIsUsed || Config::kTokens * kPitch <= Tile::kActivationBytes, "a unit of y fits a stage's x");

  // `last`: of the tile.
  __device__ explicit YStageSm90(const Ring& last)
      : last_(last.activations()), before_(last.Before().activations()) {}

  __device__ uint32_t Unit(int unit) const { return unit == 0 ? last_ : before_; }

  // Of 8 rows of w of one unit.
  __device__ static uint32_t Offset(int token, int eight) { return token * kPitch + ((eight ^ (token % 8)) << 4); }

  // Whether y can be copied so. Stages of a tile that is shorter than the ring could be those of two tiles at once.
  __device__ static bool Takes(const GemmArgs& args, int32_t slabs) {
    return args.has_y_map != 0 && slabs >= Config::kStages;
  }

 private:
  uint32_t last_;
  uint32_t before_;
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_Y_STAGE_SM90_CUH_
