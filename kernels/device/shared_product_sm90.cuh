// What    Sums of one warpgroup over the slabs of a tile, for weights that need no decoding: wgmma reads
//         both operands from shared memory.
//           scales per row, and 16-bit or int8 x: the matrix unit sums over all of K;
//           else parts of the tokens are summed from zero over the columns of one scale (at most a
//           slab), then sum += scale * partial sum in float32, while the other warpgroup multiplies.
// Shapes  sum: fragment D of ptx::WgmmaM64K16.
// Sync    As SlabProductSm90.
#ifndef GEMMD_KERNELS_DEVICE_SHARED_PRODUCT_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_SHARED_PRODUCT_SM90_CUH_

#include "kernels/device/matrix_step_sm90.cuh"
#include "kernels/device/stage_ring_sm90.cuh"
#include "kernels/device/weight_unit_sm90.cuh"
#include "kernels/device/y_stage_sm90.cuh"

namespace gemmd::device {

template <class Config>
struct SharedProductSm90 : TileSumsSm90<Config> {
  using Tile = Sm90Tile<Config>;
  using Unit = WeightUnitSm90<Config>;
  using Step = MatrixStepSm90<Config>;
  using Ring = StageRingSm90<Config>;
  using Sums = TileSumsSm90<Config>;
  using Sums::sum;
  static constexpr int kSteps = PackedLayout::kStepsPerSlab;
  // Instructions whose sum has one factor.
  static constexpr int kStepsPerSum = Tile::Unit().scale_step / Tile::Unit().step_columns();
  static constexpr int kSumsPerSlab = kSteps / kStepsPerSum;
  // Tokens that are summed from zero at a time, and promoted at a time.
  static constexpr int kPartTokens = Min(Config::kTokens, 128);
  static constexpr int kPromotedTokens = 64;
  static_assert(Tile::kIsDirect && !Config::kScaleOnWeights, "codes are operands");
  static_assert(Config::kTokens % kPromotedTokens == 0, "whole parts");

  // The warpgroup in its block.
  struct Place {
    int row_group;
    int thread;
    uint32_t first_rank;  // of the blocks that share x
  };

  // Of `slabs` stages, one or more; `ring` is left at the last one.
  __device__ void Multiply(Ring& ring, int32_t slabs, const Place& place) {
    Sums::Clear();
    if constexpr (Step::kSumsInUnit) {
      MultiplyInUnit(ring, slabs, place);
    } else {
      MultiplyInParts(ring, slabs, place);
    }
  }

 private:
  using Partial = typename Step::Partial;
  static constexpr int kPartSums = kPartTokens / 2;
  static constexpr int kPromotedSums = kPromotedTokens / 2;
  using XFactors = typename Step::template XFactors<kPromotedSums>;

  // With `left` slabs of the tile after it.
  __device__ static void GiveBack(const Ring& ring, int32_t left, const Place& place) {
    ring.ArriveEmpty(place.thread % 32, place.first_rank, left >= YStageSm90<Config>::kKeptStages);
  }

  // One slab's instructions are always in flight while the next one is waited for.
  __device__ void MultiplyInUnit(Ring& ring, int32_t slabs, const Place& place) {
    ring.WaitFull(/*x_by_ordinary_copies=*/false);
    Start<0, Config::kTokens>(ring, place, 0, kSteps, /*from_zero=*/false, Sums::InUnit());
    for (; slabs > 1; --slabs) {
      const Ring before = ring;
      ring.Advance();
      ring.WaitFull(/*x_by_ordinary_copies=*/false);
      Start<0, Config::kTokens>(ring, place, 0, kSteps, /*from_zero=*/false, Sums::InUnit());
      ptx::WgmmaWait<1>();
      GiveBack(before, slabs - 1, place);
    }
    Sums::FinishInUnit();
  }

  __device__ void MultiplyInParts(Ring& ring, int32_t slabs, const Place& place) {
    Unit unit;
    for (;;) {
      ring.WaitFull(/*x_by_ordinary_copies=*/false);
      unit.LoadScales(ring.weight_bytes() + place.row_group * Tile::kUnitBytes, place.thread);
      GEMMD_UNROLL
      for (int set = 0; set < kSumsPerSlab; ++set) {
        const float scales[2] = {unit.SumScale(set, 0), unit.SumScale(set, 1)};
        AddPart<0>(ring, place, set, scales);
        if constexpr (Config::kTokens > kPartTokens) AddPart<kPartTokens>(ring, place, set, scales);
      }
      if (--slabs == 0) return;
      GiveBack(ring, slabs, place);
      ring.Advance();
    }
  }

  // Tokens from `kFirst` on, columns of the slab's scale `set`.
  template <int kFirst>
  __device__ void AddPart(const Ring& ring, const Place& place, int set, const float (&scales)[2]) {
    Partial partial[kPartSums];
    Start<kFirst, kPartTokens>(ring, place, set * kStepsPerSum, kStepsPerSum, /*from_zero=*/true,
                               partial);
    const float* const x_scales =
        ring.placed_x_scales() + (kFirst + place.thread % 4 * 2) * Tile::kXScaleStride;
    XFactors x_factors;
    x_factors.Load(x_scales);
    Step::Finish(partial);
    Step::template Promote<kFirst / 2>(scales, x_factors, partial, sum);
    if constexpr (kPartTokens > kPromotedTokens) {
      x_factors.Load(x_scales + kPromotedTokens * Tile::kXScaleStride);
      Step::template Promote<kFirst / 2 + kPromotedSums, kPromotedSums>(scales, x_factors,
                                                                           partial, sum);
    }
  }

  // Starts `count` instructions of the stage as one group.
  template <int kFirst, int kCount, typename Accumulator>
  __device__ static void Start(const Ring& ring, const Place& place, int step, int count,
                               bool from_zero, Accumulator (&d)[kCount / Step::kTokensPerPartial]) {
    const uint64_t a =
        ptx::SwizzledTileDescriptor(ring.weights() + place.row_group * Tile::kUnitBytes);
    const uint64_t b = ptx::SwizzledTileDescriptor(ring.activations() +
                                                   kFirst * PackedLayout::kSlabRowBytes);
    GEMMD_UNROLL
    for (int i = 0; i < kCount / Step::kTokensPerPartial; ++i) ptx::PinRegister(d[i]);
    ptx::WgmmaFence();
    GEMMD_UNROLL
    for (int s = step; s < step + count; ++s) {
      Step::template Multiply<kCount>(a + s * ptx::kDescriptorStep, b + s * ptx::kDescriptorStep,
                                      from_zero && s == step ? 0 : 1, d);
    }
    ptx::WgmmaCommit();
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_SHARED_PRODUCT_SM90_CUH_
