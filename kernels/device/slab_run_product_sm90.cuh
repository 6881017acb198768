// What    Sums of one warpgroup over the slabs of a tile of 128 tokens, decoded weights, promoted. Runs of slabs are
//         summed from zero in two sets of partial sums in turn: while one is promoted the matrix unit fills the other.
//         Half of a slab is always in flight while the other half's operands are replaced; all tokens at a time,
//         because instructions of 64 tokens take longer than their products.
// Shapes  device/slab_product_sm90.cuh.
// Sync    As there.
#ifndef GEMMD_KERNELS_DEVICE_SLAB_RUN_PRODUCT_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_SLAB_RUN_PRODUCT_SM90_CUH_

#include "kernels/device/slab_product_sm90.cuh"

namespace gemmd::device {

template <class Config>
struct SlabRunProductSm90 : SlabProductSm90<Config> {
  using Base = SlabProductSm90<Config>;
  using typename Base::Operands;
  using typename Base::Place;
  using typename Base::Ring;
  using typename Base::Step;
  using typename Base::Tile;
  using typename Base::Unit;
  using Base::kHalf;
  using Partial = typename Step::Partial;
  static_assert(!Step::kSumsInUnit && Config::kTokens == 128, "promoted sums of the tile, and two sets of partial ones");
  static_assert(Config::kScaleOnWeights || Tile::Unit().scale_step >= Tile::Unit().slab_columns(),
                "no scale changes inside a slab");
  // Slabs of one partial sum: 512 columns where no scale comes between, because the unit keeps about 14 bits.
  static constexpr bool kHasOneFactor =
      (Config::kScaleOnWeights || Config::kGroupScale == kNoFormat) && !Config::kHasXScales;
  static constexpr int kSlabsPerRun = kHasOneFactor && !Step::kIsInteger ? 4 : 1;
  // A run is promoted while codes are on their way to registers, not when it is complete; integers, which become
  // floats first, would need too many registers.
  static constexpr bool kPromotesLate = !Step::kIsInteger;

  __device__ void Multiply(Ring& ring, int32_t slabs, const Place& place) {
    Unit unit;
    Base::Begin(unit, ring, place, a);
    Partial partial[2][kSums];
    StartHalf<0>(ring, 0, partial[0]);
    StartHalf<kHalf>(ring, 0, partial[0]);
    Started now = StartedAt(unit, ring);
    Started before = now;
    before.exists = false;
    int32_t left = Grow(unit, ring, slabs - 1, place, before, now, partial[0]);
    if (left == 0) {
      FinishLast(before, now, place, partial[0]);
      return;
    }
    left = StartRun<false>(unit, ring, left, place, before, now, partial[1], partial[0]);
    while (left > 0) {
      left = StartRun<true>(unit, ring, left, place, before, now, partial[0], partial[1]);
      if (left == 0) {
        FinishTwo(before, now, place, partial[1], partial[0]);
        return;
      }
      left = StartRun<true>(unit, ring, left, place, before, now, partial[1], partial[0]);
    }
    FinishTwo(before, now, place, partial[0], partial[1]);
  }

 private:
  using Base::GiveBack;
  using Base::LoadCodes;
  using Base::LoadScales;
  static constexpr int kSums = Config::kTokens / 2;

  // A slab that was started.
  struct Started {
    Ring ring;
    float scales[2];
    bool exists;
  };
  __device__ Started StartedAt(const Unit& unit, const Ring& ring) const {
    return {ring, {unit.SumScale(0, 0), unit.SumScale(0, 1)}, true};
  }

  // Up to kSlabsPerRun of the `left` slabs behind `now`, into `next`, which holds the run before the last one
  // (kHoldsRun) or nothing. Returns how many are left then.
  template <bool kHoldsRun>
  __device__ int32_t StartRun(Unit& unit, Ring& ring, int32_t left, const Place& place, Started& before, Started& now,
                              Partial (&next)[kSums], Partial (&last)[kSums]) {
    LoadNext(unit, ring, place);
    if constexpr (kPromotesLate && kHoldsRun) PromoteAll(before, place, next);
    if constexpr (kPromotesLate) GiveBackStarted(before, left + 1, place);
    MultiplyNext(unit, ring, 0, before, now, next);
    if constexpr (!kPromotesLate) {
      PromoteAll(before, place, last);
      GiveBackStarted(before, left, place);
    }
    return Grow(unit, ring, left - 1, place, before, now, next);
  }

  // The other slabs of the run that `partial` holds.
  __device__ int32_t Grow(Unit& unit, Ring& ring, int32_t left, const Place& place, Started& before, Started& now,
                          Partial (&partial)[kSums]) {
    static_assert(kSlabsPerRun == 1 || kPromotesLate, "stages of a run are given back as late");
    for (int slab = 1; slab < kSlabsPerRun && left > 0; ++slab, --left) {
      LoadNext(unit, ring, place);
      GiveBackStarted(before, left + 1, place);
      MultiplyNext(unit, ring, 1, before, now, partial);
    }
    return left;
  }

  __device__ static void LoadNext(Unit& unit, Ring& ring, const Place& place) {
    ring.Advance();
    LoadScales(unit, ring, place);
    LoadCodes(unit, ring, place);
  }
  __device__ static void GiveBackStarted(const Started& slab, int32_t left, const Place& place) {
    slab.ring.ArriveEmpty(place.thread % 32, place.first_rank,
                          slab.exists && left >= YStageSm90<Config>::kKeptStages);
  }

  // The slab of `ring`, whose codes are on their way to `unit`, while `now` is multiplied.
  __device__ void MultiplyNext(Unit& unit, const Ring& ring, int accumulate, Started& before, Started& now,
                               Partial (&to)[kSums]) {
    before = now;
    now = StartedAt(unit, ring);
    ptx::WgmmaWait<1>();
    unit.PinCodes();
    unit.DecodeSteps(0, 0, kHalf, a);
    StartHalf<0>(ring, accumulate, to);
    ptx::WgmmaWait<1>();
    unit.PinCodes();
    unit.DecodeSteps(0, kHalf, kHalf, a);
    StartHalf<kHalf>(ring, accumulate, to);
  }

  __device__ void FinishTwo(const Started& before, const Started& now, const Place& place,
                            Partial (&first)[kSums], Partial (&last)[kSums]) {
    if constexpr (kPromotesLate) PromoteAll(before, place, first);
    FinishLast(before, now, place, last);
  }
  __device__ void FinishLast(const Started& before, const Started& now, const Place& place,
                             Partial (&last)[kSums]) {
    if constexpr (kPromotesLate) GiveBackStarted(before, 1, place);
    ptx::WgmmaWait<0>();
    PromoteAll(now, place, last);
  }

  // Few scales of x at a time.
  __device__ void PromoteAll(const Started& slab, const Place& place, Partial (&partial)[kSums]) {
    GEMMD_UNROLL
    for (int i = 0; i < kSums; ++i) ptx::PinRegister(partial[i]);
    PromoteFrom<0>(slab.ring.placed_x_scales() + place.thread % 4 * 2 * Tile::kXScaleStride, slab.scales, partial);
  }
  template <int kFirst>
  __device__ void PromoteFrom(const float* x_scales, const float (&scales)[2],
                              Partial (&partial)[kSums]) {
    if constexpr (kFirst < kSums) {
      constexpr int kCount = 16;
      typename Step::template XFactors<kCount> x_factors;
      x_factors.Load(x_scales + 2 * kFirst * Tile::kXScaleStride);
      Step::template Promote<kFirst, kFirst>(scales, x_factors, partial, this->sum);
      PromoteFrom<kFirst + kCount>(x_scales, scales, partial);
    }
  }

  // Half of a slab's steps, from `kFirst` on; from zero without `accumulate`.
  template <int kFirst>
  __device__ void StartHalf(const Ring& ring, int accumulate, Partial (&partial)[kSums]) {
    Base::template Start<Config::kTokens, kFirst, kHalf>(a, ring.activations(), accumulate, partial);
  }

  Operands a;
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_SLAB_RUN_PRODUCT_SM90_CUH_
