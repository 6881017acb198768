// What    The ring of pipeline stages in shared memory, as one thread walks it.
// Shapes  device/sm90_tile.cuh.
// Sync    Producers: WaitEmpty, copy, arrive at full(). Consumers: WaitFull, read, ArriveEmpty
//         (every math warp, once).
#ifndef GEMMD_KERNELS_DEVICE_STAGE_RING_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_STAGE_RING_SM90_CUH_

#include "kernels/device/ptx/async_copy.cuh"
#include "kernels/device/ptx/mbarrier.cuh"
#include "kernels/device/sm90_tile.cuh"

namespace gemmd::device {

template <class Config>
class StageRingSm90 {
 public:
  using Tile = Sm90Tile<Config>;

  __device__ explicit StageRingSm90(char* shared)
      : shared_(shared), base_(ptx::SharedAddress(shared)) {}

  // By one thread, before a block barrier.
  __device__ void Init() const {
    for (int i = 0; i < Config::kStages; ++i) {
      ptx::MbarrierInit(Barrier(i), Tile::kProducerThreads + 1);
      ptx::MbarrierInit(Barrier(Config::kStages + i), Tile::kMathThreads / 32);
    }
    ptx::MbarrierInitFence();
  }

  __device__ uint32_t full() const { return Barrier(stage_); }
  __device__ uint32_t activations() const { return base_ + stage_ * Tile::kActivationBytes; }
  __device__ uint32_t weights() const { return base_ + WeightOffset(); }
  __device__ const char* weight_bytes() const { return shared_ + WeightOffset(); }

  __device__ void WaitEmpty() const { ptx::MbarrierWait(empty(), parity_ ^ 1); }
  __device__ void WaitFull() const {
    ptx::MbarrierWait(full(), parity_);
    ptx::AsyncProxyFence();  // activations came by ordinary copies, wgmma reads them
  }
  __device__ void ArriveEmpty(bool is_first_of_warp) const {
    __syncwarp();
    if (is_first_of_warp) ptx::MbarrierArrive(empty());
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

  char* shared_;
  uint32_t base_;
  int stage_ = 0;
  uint32_t parity_ = 0;
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_STAGE_RING_SM90_CUH_
