// What    Sums of one warpgroup over the slabs of a tile of more than 128 tokens, decoded weights, promoted every
//         slab: a part of the tokens is multiplied while the part before it is promoted.
// Shapes  device/slab_product_sm90.cuh.
// Sync    As there.
#ifndef GEMMD_KERNELS_DEVICE_SLAB_PART_PRODUCT_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_SLAB_PART_PRODUCT_SM90_CUH_

#include "kernels/device/slab_product_sm90.cuh"

namespace gemmd::device {

template <class Config>
struct SlabPartProductSm90 : SlabProductSm90<Config> {
  using Base = SlabProductSm90<Config>;
  using typename Base::Operands;
  using typename Base::Place;
  using typename Base::Ring;
  using typename Base::Step;
  using typename Base::Tile;
  using typename Base::Unit;
  using Base::kSteps;
  using Partial = typename Step::Partial;
  static constexpr int kPartTokens = 64;  // that are summed from zero at a time
  static constexpr int kPartSums = kPartTokens / 2;
  static constexpr int kParts = Config::kTokens / kPartTokens;
  static_assert(!Step::kSumsInUnit && kParts >= 2, "promoted sums, two parts at a time");
  static_assert(Config::kScaleOnWeights || Tile::Unit().scale_step >= Tile::Unit().slab_columns(),
                "no scale changes inside a slab");

  __device__ void Multiply(Ring& ring, int32_t slabs, const Place& place) {
    Unit unit;
    Base::Begin(unit, ring, place, a);
    Partial partial[2][kPartSums];
    StartPart<0>(ring, partial[0]);
    for (;;) {
      const float scales[2] = {unit.SumScale(0, 0), unit.SumScale(0, 1)};
      FinishAllButLast<1>(ring, scales, place, partial);
      constexpr int kLast = kParts - 1;
      XFactors x_factors;
      if (--slabs == 0) {
        x_factors.Load(XScalesOf<kLast>(ring, place));
        Step::Finish(partial[kLast % 2]);
        PromotePart<kLast>(scales, x_factors, partial[kLast % 2]);
        return;
      }
      Ring next = ring;
      next.Advance();
      LoadScales(unit, next, place);
      LoadCodes(unit, next, place);
      x_factors.Load(XScalesOf<kLast>(ring, place));
      Step::Finish(partial[kLast % 2]);
      unit.Decode(0, a);
      StartPart<0>(next, partial[0]);
      PromotePart<kLast>(scales, x_factors, partial[kLast % 2]);
      GiveBack(ring, slabs, place);
      ring = next;
    }
  }

 private:
  using Base::GiveBack;
  using Base::LoadCodes;
  using Base::LoadScales;
  using XFactors = typename Step::template XFactors<kPartSums>;

  // From `kPart` on.
  template <int kPart>
  __device__ void FinishAllButLast(const Ring& ring, const float (&scales)[2],
                                   const Place& place,
                                   Partial (&partial)[2][kPartSums]) {
    if constexpr (kPart < kParts) {
      StartPart<kPart>(ring, partial[kPart % 2]);
      XFactors x_factors;  // read while the matrix unit works
      x_factors.Load(XScalesOf<kPart - 1>(ring, place));
      ptx::WgmmaWait<1>();
      PromotePart<kPart - 1>(scales, x_factors, partial[(kPart - 1) % 2]);
      FinishAllButLast<kPart + 1>(ring, scales, place, partial);
    }
  }

  template <int kPart>
  __device__ void StartPart(const Ring& ring, Partial (&partial)[kPartSums]) {
    Base::template Start<kPartTokens, 0, kSteps>(
        a, ring.activations() + kPart * kPartTokens * PackedLayout::kSlabRowBytes, 0, partial);
  }

  template <int kPart>
  __device__ static const float* XScalesOf(const Ring& ring, const Place& place) {
    const int first_token = kPart * kPartTokens + place.thread % 4 * 2;
    return ring.placed_x_scales() + first_token * Tile::kXScaleStride;
  }

  template <int kPart>
  __device__ void PromotePart(const float (&scales)[2],
                              const XFactors& x_factors,
                              Partial (&partial)[kPartSums]) {
    GEMMD_UNROLL
    for (int i = 0; i < kPartSums; ++i) ptx::PinRegister(partial[i]);
    Step::template Promote<kPart * kPartSums>(scales, x_factors, partial, this->sum);
  }

  Operands a;
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_SLAB_PART_PRODUCT_SM90_CUH_
