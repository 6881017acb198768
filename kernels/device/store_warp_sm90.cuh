// What    A warp that copies finished tiles of y (YStageSm90) to global memory by the tensor memory
//         accelerator, while the math warps work on the next one, and gives the tile's stages back for them.
// Sync    ring.stored(): one arrival per math warp when y of a tile is there.
#ifndef GEMMD_KERNELS_DEVICE_STORE_WARP_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_STORE_WARP_SM90_CUH_

#include "kernels/device/ptx/tensor_copy.cuh"
#include "kernels/device/ptx/warpgroup.cuh"
#include "kernels/device/y_stage_sm90.cuh"

namespace gemmd::device {

template <class Config>
class StoreWarpSm90 {
 public:
  using Ring = StageRingSm90<Config>;
  using Stage = YStageSm90<Config>;

  __device__ StoreWarpSm90(const GemmArgs& args, int lane, uint32_t first_rank)
      : args_(args), lane_(lane), first_rank_(first_rank) {
    ptx::PrefetchTensorMap(&args.y_map);
  }

  // `last`: stage of the tile whose first row of x and of w these are.
  __device__ void Store(const Ring& last, int32_t first_token, int32_t first_row) {
    ptx::MbarrierWait(last.stored(), parity_);
    parity_ ^= 1;
    if (!ptx::ElectOne()) return;
    const Stage stage(last);
    GEMMD_UNROLL
    for (int unit = 0; unit < Stage::kUnits; ++unit) {  // what lies outside y is not written: rows are whole 16 bytes
      ptx::TensorStore2d(&args_.y_map, first_row + unit * PackedLayout::kUnitRows, first_token, stage.Unit(unit));
    }
    ptx::TensorStoresCommit();
    ptx::TensorStoresWaitRead();
  }

  // The stages of the tile that was stored, for the next one.
  __device__ void GiveBack(const Ring& last) const {
    last.ArriveEmptyForAll(lane_, first_rank_);
    if (Stage::kKeptStages > 1) last.Before().ArriveEmptyForAll(lane_, first_rank_);
  }

 private:
  const GemmArgs& args_;
  int lane_;
  uint32_t first_rank_;  // of the blocks that share tiles
  uint32_t parity_ = 0;
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_STORE_WARP_SM90_CUH_
