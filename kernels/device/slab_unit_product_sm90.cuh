// What    Sums of one warpgroup over the slabs of a tile, decoded weights: no scale comes between (scales on the
//         weights, per row, or int8), and the matrix unit sums over all of K.
// Shapes  device/slab_product_sm90.cuh.
// Sync    As there.
#ifndef GEMMD_KERNELS_DEVICE_SLAB_UNIT_PRODUCT_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_SLAB_UNIT_PRODUCT_SM90_CUH_

#include "kernels/device/slab_product_sm90.cuh"

namespace gemmd::device {

template <class Config>
struct SlabUnitProductSm90 : SlabProductSm90<Config> {
  using Base = SlabProductSm90<Config>;
  using typename Base::Operands;
  using typename Base::Place;
  using typename Base::Ring;
  using typename Base::Step;
  using typename Base::Unit;
  using Base::kHalf;
  using Base::kSteps;
  static_assert(Step::kSumsInUnit, "sums that are not promoted");
  // Half of a slab keeps the matrix unit busy while the other half's operands are replaced, so each instruction
  // exists once: the compiler takes longest for those of 256 tokens.
  static constexpr bool kInHalves = Config::kTokens == 256;

  __device__ void Multiply(Ring& ring, int32_t slabs, const Place& place) {
    Unit unit;
    Base::Begin(unit, ring, place, a[0]);
    if constexpr (kInHalves) {
      MultiplyInHalves(unit, ring, slabs, place);
    } else {
      MultiplyBySlabs(unit, ring, slabs, place);
    }
  }

 private:
  using Base::GiveBack;
  using Base::LoadCodes;
  using Base::LoadScales;

  // One slab's instructions are always in flight while the next one's operands are decoded. ptxas keeps
  // them so only when both steps of the loop are unconditional: behind the last of an even number of slabs
  // that one is decoded again, and not used.
  __device__ void MultiplyBySlabs(Unit& unit, Ring& ring, int32_t slabs, const Place& place) {
    Ring before = ring;  // the stage before `ring`'s, whose instructions may still run
    bool has_before = false;
    const auto advance = [&](auto next_set, bool has_next, int32_t left) {
      Ring next = ring;
      if (has_next) next.Advance();
      LoadScales(unit, next, place);
      LoadCodes(unit, next, place);
      ptx::WgmmaWait<1>();
      unit.PinCodes();
      if (has_before) GiveBack(before, left, place);
      has_before = true;
      unit.Decode(0, a[decltype(next_set)::value]);
      before = ring;
      ring = next;
    };
    for (; slabs > 1; slabs -= 2) {
      Start<0, 0, kSteps>(ring);
      advance(Index<1>(), true, slabs);
      Start<1, 0, kSteps>(ring);
      advance(Index<0>(), slabs > 2, slabs - 1);
    }
    if (slabs == 1) Start<0, 0, kSteps>(ring);
    this->FinishInUnit();
    if (slabs == 1 && has_before) GiveBack(before, 1, place);
  }
  template <int kValue>
  struct Index {
    static constexpr int value = kValue;
  };

  // `kCount` steps of a slab from `kFirst` on.
  template <int kSet, int kFirst, int kCount>
  __device__ void Start(const Ring& ring) {
    Base::template Start<Config::kTokens, kFirst, kCount>(a[kSet], ring.activations(), 1, this->InUnit());
  }

  // A slab's instructions are two groups, one of which is always in flight: the first one's operands are replaced
  // by the next slab's while the second runs, and the other way round. Behind the last slab that one is decoded
  // again, and not used.
  __device__ void MultiplyInHalves(Unit& unit, Ring& ring, int32_t slabs, const Place& place) {
    Operands next_a;
    unit.Decode(0, next_a);
    Ring before = ring;  // the stage before `ring`'s
    bool has_before = false;
    while (true) {
      const uint32_t zero = static_cast<uint32_t>(slabs) >> 31;
      Start<0, 0, kHalf>(ring);
      ptx::WgmmaWait<1>();
      Take(next_a, kHalf, zero);
      if (has_before) GiveBack(before, slabs, place);
      Start<0, kHalf, kHalf>(ring);
      Ring next = ring;
      if (slabs > 1) next.Advance();
      LoadScales(unit, next, place);
      LoadCodes(unit, next, place);
      unit.Decode(0, next_a);
      Base::Pin(next_a, 0, kSteps);
      ptx::WgmmaWait<1>();
      Take(next_a, 0, zero);
      if (--slabs == 0) break;
      before = ring;
      has_before = true;
      ring = next;
    }
    this->FinishInUnit();
  }

  // Operands of half a slab, from step `first` on. `zero` is 0, which the compiler does not know: it must not
  // decode into registers that instructions in flight read.
  __device__ void Take(const Operands& from, int first, uint32_t zero) {
    GEMMD_UNROLL
    for (int s = first; s < first + kHalf; ++s) {
      GEMMD_UNROLL
      for (int i = 0; i < 4; ++i) a[0][s][i] = from[s][i] ^ zero;
    }
  }

  Operands a[kInHalves ? 1 : 2];
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_SLAB_UNIT_PRODUCT_SM90_CUH_
