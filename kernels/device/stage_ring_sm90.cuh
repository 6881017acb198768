// What    The ring of pipeline stages in shared memory, as one thread walks it.
// Shapes  device/sm90_tile.cuh.
// Sync    Producers: WaitEmpty, copy, arrive at full(). Consumers: WaitFull, read, ArriveEmpty
//         (every math warp, once). Blocks that share tiles of x or w write into each other's
//         stages, so a stage is empty when the math warps of all of them have arrived.
#ifndef GEMMD_KERNELS_DEVICE_STAGE_RING_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_STAGE_RING_SM90_CUH_

#include "kernels/device/ptx/async_copy.cuh"
#include "kernels/device/ptx/cluster.cuh"
#include "kernels/device/ptx/mbarrier.cuh"
#include "kernels/device/sm90_tile.cuh"

namespace gemmd::device {

template <class Config>
class StageRingSm90 {
 public:
  using Tile = Sm90Tile<Config>;

  __device__ explicit StageRingSm90(char* shared)
      : shared_(shared), base_(ptx::SharedAddress(shared)) {}

  // By one thread, before a barrier of the block, or of the cluster when blocks share x.
  // `producers`: threads that arrive at full() beside the one that starts bulk copies.
  __device__ void Init(int producers) const {
    for (int i = 0; i < Config::kStages; ++i) {
      ptx::MbarrierInit(Barrier(i), producers + 1);
      ptx::MbarrierInit(Barrier(Config::kStages + i), Tile::kMathThreads / 32 * Tile::kPartners);
    }
    ptx::MbarrierInit(stored(), Tile::kMathThreads / 32);
    ptx::MbarrierInitFence();
  }

  __device__ int stage() const { return stage_; }
  // Of stage 0; those of the others follow it, Tile::kActivationBytes and kWeightBytes apart.
  __device__ uint32_t first_activations() const { return base_; }
  __device__ uint32_t first_weights() const { return base_ + Tile::kWeightOffset; }

  __device__ uint32_t full() const { return Barrier(stage_); }
  __device__ uint32_t activations() const { return base_ + stage_ * Tile::kActivationBytes; }
  __device__ char* activation_bytes() const { return shared_ + stage_ * Tile::kActivationBytes; }
  __device__ uint32_t weights() const { return base_ + WeightOffset(); }
  __device__ const char* weight_bytes() const { return shared_ + WeightOffset(); }
  // Scales of x of the stage.
  __device__ uint32_t x_scales() const { return base_ + XScaleOffset(); }
  __device__ float* x_scale_floats() const {
    return reinterpret_cast<float*>(shared_ + XScaleOffset());
  }

  // With stages of one slab, which can share a tile of scales: its place, in floats from tile 0 on, and the
  // scales from the first token's on, kXScaleStride apart.
  __device__ uint32_t x_scale_tile(int index) const {
    return base_ + Tile::kXScaleOffset + index * Tile::kXScaleBytes;
  }
  __device__ int32_t& x_scale_place() const {
    return *reinterpret_cast<int32_t*>(shared_ + XScaleOffset() + Tile::kXScalePlaceOffset);
  }
  __device__ const float* placed_x_scales() const {
    return reinterpret_cast<const float*>(shared_ + Tile::kXScaleOffset) +
           (Config::kHasXScales ? x_scale_place() : 0);
  }
  // The scale that all rows of w share.
  __device__ uint32_t shared_scale() const { return x_scales() + Tile::kSharedScaleOffset; }
  __device__ const char* shared_scale_bytes() const {
    return shared_ + XScaleOffset() + Tile::kSharedScaleOffset;
  }

  __device__ void WaitEmpty() const { ptx::MbarrierWait(empty(), parity_ ^ 1); }
  __device__ void WaitFull(bool x_by_ordinary_copies) const {
    ptx::MbarrierWait(full(), parity_);
    if (x_by_ordinary_copies) ptx::AsyncProxyFence();  // wgmma reads them
  }
  // `first_rank`: of the blocks that share tiles. Without `arrives` nothing happens: a branch around this would
  // take the ring's place out of uniform registers.
  __device__ void ArriveEmpty(uint32_t lane_of_warp, uint32_t first_rank, bool arrives = true) const {
    __syncwarp();
    if (lane_of_warp >= Tile::kPartners || !arrives) return;
    if constexpr (Tile::kPartners == 1) {
      ptx::MbarrierArrive(empty());
    } else {
      ptx::MbarrierArriveRemote(ptx::MapToRank(empty(), first_rank + lane_of_warp));
    }
  }
  // For all math warps, by another one.
  __device__ void ArriveEmptyForAll(uint32_t lane, uint32_t first_rank) const {
    constexpr int kArrivals = Tile::kMathThreads / 32;
    __syncwarp();
    if (lane >= Tile::kPartners) return;
    if constexpr (Tile::kPartners == 1) {
      ptx::MbarrierArriveTimes(empty(), kArrivals);
    } else {
      ptx::MbarrierArriveRemoteTimes(ptx::MapToRank(empty(), first_rank + lane), kArrivals);
    }
  }
  // Of a tile whose y is in shared memory (y_stage_sm90.cuh): one arrival per math warp.
  __device__ uint32_t stored() const { return Barrier(2 * Config::kStages); }

  // The stage before, to give it back.
  __device__ StageRingSm90 Before() const {
    StageRingSm90 ring = *this;
    ring.stage_ = stage_ == 0 ? Config::kStages - 1 : stage_ - 1;
    return ring;
  }
  // As after `count` times Advance.
  __device__ void AdvanceBy(int32_t count) {
    stage_ = (stage_ + count) % Config::kStages;  // parity: of no use to who waits for no stage
  }
  __device__ void Advance() {
    if (++stage_ == Config::kStages) {
      stage_ = 0;
      parity_ ^= 1;
    }
  }

 private:
  __device__ uint32_t empty() const { return Barrier(Config::kStages + stage_); }
  __device__ uint32_t Barrier(int i) const { return base_ + Tile::kBarrierOffset + i * 8; }
  __device__ int WeightOffset() const { return Tile::kWeightOffset + stage_ * Tile::kWeightBytes; }
  __device__ int XScaleOffset() const { return Tile::kXScaleOffset + stage_ * Tile::kXScaleBytes; }

  char* shared_;
  uint32_t base_;
  int stage_ = 0;
  uint32_t parity_ = 0;
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_STAGE_RING_SM90_CUH_
