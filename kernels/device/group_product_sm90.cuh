// What    Sums of one warpgroup over its chunks: decode, wgmma over scale_step columns from zero,
//         then sum += scale * partial sum in float32.
// Shapes  sum: fragment D of ptx::WgmmaM64K16.
// Sync    Multiply is called with the unit and the first slab's registers ready; while the matrix
//         unit works it decodes the second slab and calls `ahead`, which may prepare the next
//         chunk's first slab once `WgmmaWait` allows. Returns with nothing in flight.
#ifndef GEMMD_KERNELS_DEVICE_GROUP_PRODUCT_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_GROUP_PRODUCT_SM90_CUH_

#include "kernels/device/ptx/wgmma_m64k16.cuh"
#include "kernels/device/ptx/wgmma_sync.cuh"
#include "kernels/device/sm90_tile.cuh"
#include "kernels/device/weight_unit_sm90.cuh"

namespace gemmd::device {

template <class Config>
struct GroupProductSm90 {
  using Tile = Sm90Tile<Config>;
  using Unit = WeightUnitSm90<Config>;
  static constexpr int kFloats = Config::kTokens / 2;
  static constexpr int kSlabs = PackedLayout::kSlabsPerChunk;
  static constexpr int kSteps = Unit::kStepsPerSlab;
  static constexpr int kStepsPerSet = Config::kScaleStep / 16;
  static constexpr bool kOneSet = kStepsPerSet == kSlabs * kSteps;
  static constexpr int kStepsPerBatch = kStepsPerSet < kSteps ? kStepsPerSet : kSteps;

  float sum[kFloats];
  uint32_t a[kSlabs][kSteps][4];

  __device__ void Clear() {
    GEMMD_UNROLL
    for (int i = 0; i < kFloats; ++i) sum[i] = 0;
  }

  // `activations`: the chunk's tile. `prefetch` loads the next chunk's unit; then its first slab is decoded
  // when `has_next`.
  template <typename Prefetch>
  __device__ void Multiply(Unit& unit, uint32_t activations, bool has_next, Prefetch prefetch) {
    float partial[kFloats];
    float scales[Unit::kSets][2];
    GEMMD_UNROLL
    for (int set = 0; set < Unit::kSets; ++set) {
      scales[set][0] = unit.scales[set][0];
      scales[set][1] = unit.scales[set][1];
    }
    if constexpr (kOneSet) {
      Start(activations, 0, 0, kSteps, partial);
      unit.DecodeSlab(1, a[1]);
      Start(activations, 1, 0, kSteps, partial);
      if (has_next) {
        prefetch();
        ptx::WgmmaWait<1>();
        unit.DecodeSlab(0, a[0]);
      }
      ptx::WgmmaWait<0>();
      Promote(scales[0], partial);
    } else {
      unit.DecodeSlab(1, a[1]);
      if (has_next) prefetch();
      GEMMD_UNROLL
      for (int step = 0; step < kSlabs * kSteps; step += kStepsPerBatch) {
        Start(activations, step / kSteps, step % kSteps, kStepsPerBatch, partial);
        ptx::WgmmaWait<0>();
        Promote(scales[step / kStepsPerSet], partial);
      }
      if (has_next) unit.DecodeSlab(0, a[0]);
    }
  }

 private:
  // Starts `count` instructions of a slab as one group; the first of a set starts from zero.
  __device__ void Start(uint32_t activations, int slab, int step, int count,
                        float (&partial)[kFloats]) {
    const uint64_t b = ptx::SwizzledTileDescriptor(activations + slab * Tile::kSlabTileBytes);
    ptx::WgmmaFence();
    GEMMD_UNROLL
    for (int s = step; s < step + count; ++s) {
      const bool is_first = (slab * kSteps + s) % kStepsPerSet == 0;
      ptx::WgmmaM64K16<Config::kXType, Config::kTokens>(
          partial, a[slab][s], b + s * ptx::kDescriptorStep, is_first ? 0 : 1);
    }
    ptx::WgmmaCommit();
  }

  __device__ void Promote(const float (&scales)[2], const float (&partial)[kFloats]) {
    GEMMD_UNROLL
    for (int i = 0; i < kFloats; ++i) sum[i] += scales[i % 4 / 2] * partial[i];
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_GROUP_PRODUCT_SM90_CUH_
