// What    What the products of decoded weights over the slabs of a tile have in common: 64 rows of w a warpgroup,
//         decoded once for all kTokens rows of x.
//           slab_unit_product_sm90.cuh  the matrix unit sums over all of K
//           slab_run_product_sm90.cuh   tiles of 128 tokens, promoted
//           slab_part_product_sm90.cuh  larger tiles, promoted
//         Promoted: the sum of columns that have one factor is made from zero in the matrix unit, then
//         sum += factor * that sum in float32.
// Shapes  sum: fragment D of ptx::WgmmaM64K16.
// Sync    Multiply: the whole warpgroup; of `slabs` stages, one or more; `ring` is left at the last one. Stages are
//         given back once nothing reads them, but for the last YStageSm90::kKeptStages of a tile. Returns with nothing
//         in flight.
#ifndef GEMMD_KERNELS_DEVICE_SLAB_PRODUCT_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_SLAB_PRODUCT_SM90_CUH_

#include "kernels/device/matrix_step_sm90.cuh"
#include "kernels/device/stage_ring_sm90.cuh"
#include "kernels/device/weight_unit_sm90.cuh"
#include "kernels/device/y_stage_sm90.cuh"

namespace gemmd::device {

template <class Config>
struct SlabProductSm90 : TileSumsSm90<Config> {
  using Tile = Sm90Tile<Config>;
  using Unit = WeightUnitSm90<Config>;
  using Step = MatrixStepSm90<Config>;
  using Ring = StageRingSm90<Config>;
  using Sums = TileSumsSm90<Config>;
  static constexpr int kSteps = PackedLayout::kStepsPerSlab;
  static constexpr int kHalf = kSteps / 2;
  using Operands = uint32_t[kSteps][4];
  static_assert(!(Config::kHasXScales && Unit::kIsWide), "scales of x come with 8-bit operands");
  static_assert(!Unit::kIsDirect, "shared_product_sm90.cuh or token_product_sm90.cuh");

  // The warpgroup in its block.
  struct Place {
    int row_group;
    int thread;
    uint32_t first_rank;  // of the blocks that share x
  };

 protected:
  // The first slab's operands.
  __device__ void Begin(Unit& unit, const Ring& ring, const Place& place, Operands& operands) {
    Sums::Clear();
    LoadScales(unit, ring, place);
    LoadCodes(unit, ring, place);
    unit.Decode(0, operands);
  }

  __device__ static const char* UnitOf(const Ring& ring, const Place& place) {
    return ring.weight_bytes() + place.row_group * Tile::kUnitBytes;
  }
  __device__ static void LoadScales(Unit& unit, const Ring& ring, const Place& place) {
    ring.WaitFull(/*x_by_ordinary_copies=*/false);
    unit.LoadScales(UnitOf(ring, place), place.thread);
  }
  __device__ static void LoadCodes(Unit& unit, const Ring& ring, const Place& place) {
    unit.LoadCodes(UnitOf(ring, place), place.thread, /*has_second_slab=*/false);
  }
  // With `left` slabs of the tile after it.
  __device__ static void GiveBack(const Ring& ring, int32_t left, const Place& place) {
    ring.ArriveEmpty(place.thread % 32, place.first_rank, left >= YStageSm90<Config>::kKeptStages);
  }

  // `kCount` steps of a slab from `kFirst` on as one group: for kTokens rows of x that lie at `activations`, from zero
  // without `accumulate`.
  template <int kTokens, int kFirst, int kCount>
  __device__ static void Start(Operands& a, uint32_t activations, int accumulate,
                               typename Step::Partial (&d)[kTokens / Step::kTokensPerPartial]) {
    const uint64_t b = ptx::SwizzledTileDescriptor(activations);
    Pin(a, kFirst, kCount);
    ptx::WgmmaFence();
    GEMMD_UNROLL
    for (int s = kFirst; s < kFirst + kCount; ++s) {
      Step::template Multiply<kTokens>(a[s], b + s * ptx::kDescriptorStep, s == 0 ? accumulate : 1, d);
    }
    ptx::WgmmaCommit();
  }

  __device__ static void Pin(Operands& operands, int first, int count) {
    GEMMD_UNROLL
    for (int s = first; s < first + count; ++s) {
      GEMMD_UNROLL
      for (int i = 0; i < 4; ++i) ptx::PinRegister(operands[s][i]);
    }
  }

};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_SLAB_PRODUCT_SM90_CUH_
