// What    Sums of one warpgroup over the slabs of a tile: 64 rows of w, decoded once for all kTokens
//         rows of x.
//           scales on the weights, per row, or int8: the matrix unit sums over all of K;
//           else parts of the tokens are summed from zero over the columns of one scale (at most a
//           slab), then sum += scale * partial sum in float32.
// Shapes  sum: fragment D of ptx::WgmmaM64K16.
// Sync    The whole warpgroup. Stages are given back once nothing reads them, but for the last
//         YStageSm90::kKeptStages of a tile. Returns with nothing in flight.
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
  using Sums::sum;
  static constexpr int kSteps = PackedLayout::kStepsPerSlab;

  static constexpr bool kSumsInUnit = Step::kSumsInUnit;
  // Half of a slab keeps the matrix unit busy while the other half's operands are replaced, so each instruction
  // exists once: the compiler takes longest for those of 256 tokens.
  static constexpr bool kInHalves = kSumsInUnit && Config::kTokens == 256;
  // Two sets of partial sums of the whole tile: one is promoted while the matrix unit fills the other.
  static constexpr bool kAlternates = !kSumsInUnit && Config::kTokens == 128;
  // Instructions whose sum has one factor.
  static constexpr int kStepsPerSum =
      Config::kScaleOnWeights ? kSteps : Tile::Unit().scale_step / Tile::Unit().step_columns();
  static constexpr int kSumsPerSlab = kSteps / kStepsPerSum;
  // Tokens that are summed from zero at a time.
  static constexpr int kPartTokens = kAlternates ? 128 : 64;
  static_assert(kSumsInUnit || kAlternates || Config::kTokens >= 2 * kPartTokens, "two parts at a time");
  static_assert(kSumsInUnit || kSumsPerSlab == 1, "no scale changes inside a slab");
  static constexpr int kTokenParts = Config::kTokens / kPartTokens;
  static constexpr int kParts = kTokenParts * kSumsPerSlab;
  static constexpr int kPartSums = kPartTokens / 2;
  static constexpr int kHalf = kSteps / 2;
  static constexpr int kOperandSets = kSumsInUnit && !kInHalves ? 2 : 1;
  using Operands = uint32_t[kSteps][4];
  static_assert(!(Config::kHasXScales && Unit::kIsWide), "scales of x come with 8-bit operands");

  // The warpgroup in its block.
  struct Place {
    int row_group;
    int thread;
    uint32_t first_rank;  // of the blocks that share x
  };

  // Of `slabs` stages, one or more; `ring` is left at the last one.
  __device__ void Multiply(Ring& ring, int32_t slabs, const Place& place) {
    Sums::Clear();
    Unit unit;
    LoadScales(unit, ring, place);
    LoadCodes(unit, ring, place);
    unit.Decode(0, a[0]);
    if constexpr (kInHalves) {
      MultiplyInHalves(unit, ring, slabs, place);
    } else if constexpr (kSumsInUnit) {
      MultiplyInUnit(unit, ring, slabs, place);
    } else if constexpr (kAlternates) {
      MultiplyAlternating(unit, ring, slabs, place);
    } else {
      MultiplyInParts(unit, ring, slabs, place);
    }
  }

 private:
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

  // One slab's instructions are always in flight while the next one's operands are decoded. ptxas keeps
  // them so only when both steps of the loop are unconditional: behind the last of an even number of slabs
  // that one is decoded again, and not used.
  __device__ void MultiplyInUnit(Unit& unit, Ring& ring, int32_t slabs, const Place& place) {
    Ring before = ring;  // the stage before `ring`'s, whose instructions may still run
    bool has_before = false;
    const auto advance = [&](auto next_set, bool has_next, int32_t left) {
      Ring next = ring;
      if (has_next) next.Advance();
      LoadScales(unit, next, place);
      // Codes that are operands as they are go straight to the registers that wgmma reads.
      if constexpr (!Unit::kIsDirect) LoadCodes(unit, next, place);
      ptx::WgmmaWait<1>();
      if constexpr (Unit::kIsDirect) {
        LoadCodes(unit, next, place);
      } else {
        unit.PinCodes();
      }
      if (has_before) GiveBack(before, left, place);
      has_before = true;
      unit.Decode(0, a[decltype(next_set)::value]);
      before = ring;
      ring = next;
    };
    for (; slabs > 1; slabs -= 2) {
      StartAll<0>(ring);
      advance(Index<1>(), true, slabs);
      StartAll<1>(ring);
      advance(Index<0>(), slabs > 2, slabs - 1);
    }
    if (slabs == 1) StartAll<0>(ring);
    Sums::FinishInUnit();
    if (slabs == 1 && has_before) GiveBack(before, 1, place);
  }
  template <int kValue>
  struct Index {
    static constexpr int value = kValue;
  };

  template <int kNow>
  __device__ void StartAll(const Ring& ring) {
    Start<kNow, 0, kSteps>(ring);
  }

  // `kCount` steps of a slab as one group.
  template <int kSet, int kFirst, int kCount>
  __device__ void Start(const Ring& ring) {
    const uint64_t b = ptx::SwizzledTileDescriptor(ring.activations());
    Pin(a[kSet], kFirst, kCount);
    ptx::WgmmaFence();
    GEMMD_UNROLL
    for (int s = kFirst; s < kFirst + kCount; ++s) {
      Step::template Multiply<Config::kTokens>(a[kSet][s], b + s * ptx::kDescriptorStep, 1, Sums::InUnit());
    }
    ptx::WgmmaCommit();
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
      Pin(next_a, 0, kSteps);
      ptx::WgmmaWait<1>();
      Take(next_a, 0, zero);
      if (--slabs == 0) break;
      before = ring;
      has_before = true;
      ring = next;
    }
    Sums::FinishInUnit();
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

  // As in MultiplyInHalves, half of a slab is in flight while the other half's operands are replaced. All tokens at a
  // time: instructions of 64 tokens take longer than their products.
  __device__ void MultiplyAlternating(Unit& unit, Ring& ring, int32_t slabs, const Place& place) {
    typename Step::Partial partial[2][kPartSums];
    StartHalf<0>(ring, partial[0]);
    StartHalf<kHalf>(ring, partial[0]);
    for (; slabs > 2; slabs -= 2) {
      StartNextAndPromote(unit, ring, slabs - 1, place, partial[1], partial[0]);
      StartNextAndPromote(unit, ring, slabs - 2, place, partial[0], partial[1]);
    }
    if (slabs == 2) {
      StartNextAndPromote(unit, ring, 1, place, partial[1], partial[0]);
      PromoteLast(unit, ring, place, partial[1]);
    } else {
      PromoteLast(unit, ring, place, partial[0]);
    }
  }

  // `left`: slabs after `now`'s.
  __device__ void StartNextAndPromote(Unit& unit, Ring& ring, int32_t left, const Place& place,
                                      typename Step::Partial (&next)[kPartSums],
                                      typename Step::Partial (&now)[kPartSums]) {
    const float scales[2] = {unit.SumScale(0, 0), unit.SumScale(0, 1)};
    const Ring before = ring;
    ring.Advance();
    LoadScales(unit, ring, place);
    LoadCodes(unit, ring, place);
    ptx::WgmmaWait<1>();
    unit.PinCodes();
    unit.DecodeSteps(0, 0, kHalf, a[0]);
    StartHalf<0>(ring, next);
    ptx::WgmmaWait<1>();
    unit.PinCodes();
    unit.DecodeSteps(0, kHalf, kHalf, a[0]);
    StartHalf<kHalf>(ring, next);
    PromoteAll(before, scales, place, now);
    GiveBack(before, left, place);
  }

  __device__ void PromoteLast(const Unit& unit, const Ring& ring, const Place& place,
                              typename Step::Partial (&now)[kPartSums]) {
    const float scales[2] = {unit.SumScale(0, 0), unit.SumScale(0, 1)};
    ptx::WgmmaWait<0>();
    PromoteAll(ring, scales, place, now);
  }

  // Few scales of x at a time.
  __device__ void PromoteAll(const Ring& ring, const float (&scales)[2], const Place& place,
                             typename Step::Partial (&partial)[kPartSums]) {
    GEMMD_UNROLL
    for (int i = 0; i < kPartSums; ++i) ptx::PinRegister(partial[i]);
    PromoteFrom<0>(ring.placed_x_scales() + place.thread % 4 * 2 * Tile::kXScaleStride, scales, partial);
  }
  template <int kFirst>
  __device__ void PromoteFrom(const float* x_scales, const float (&scales)[2],
                              typename Step::Partial (&partial)[kPartSums]) {
    if constexpr (kFirst < kPartSums) {
      constexpr int kCount = 16;
      typename Step::template XFactors<kCount> x_factors;
      x_factors.Load(x_scales + 2 * kFirst * Tile::kXScaleStride);
      Step::template Promote<kFirst, kFirst>(scales, x_factors, partial, sum);
      PromoteFrom<kFirst + kCount>(x_scales, scales, partial);
    }
  }

  // Half of a slab's steps, from `kFirst` on, of all tokens.
  template <int kFirst>
  __device__ void StartHalf(const Ring& ring, typename Step::Partial (&partial)[kPartSums]) {
    const uint64_t b = ptx::SwizzledTileDescriptor(ring.activations());
    Pin(a[0], kFirst, kHalf);
    ptx::WgmmaFence();
    GEMMD_UNROLL
    for (int s = kFirst; s < kFirst + kHalf; ++s) {
      Step::template Multiply<kPartTokens>(a[0][s], b + s * ptx::kDescriptorStep, s == 0 ? 0 : 1, partial);
    }
    ptx::WgmmaCommit();
  }

  // A part of the tokens is multiplied while the part before it is promoted.
  __device__ void MultiplyInParts(Unit& unit, Ring& ring, int32_t slabs, const Place& place) {
    typename Step::Partial partial[2][kPartSums];
    StartPart<0>(ring, partial[0]);
    for (;;) {
      float scales[kSumsPerSlab][2];
      GEMMD_UNROLL
      for (int sum_index = 0; sum_index < kSumsPerSlab; ++sum_index) {
        scales[sum_index][0] = unit.SumScale(sum_index, 0);
        scales[sum_index][1] = unit.SumScale(sum_index, 1);
      }
      FinishAllButLast<1>(ring, scales, place, partial);
      constexpr int kLast = kParts - 1;
      typename Step::template XFactors<kPartSums> x_factors;
      if (--slabs == 0) {
        x_factors.Load(XScalesOf<kLast>(ring, place));
        Step::Finish(partial[kLast % 2]);
        PromotePart<kLast>(scales, x_factors, partial[kLast % 2]);
        return;
      }
      Ring next = ring;
      next.Advance();
      LoadScales(unit, next, place);
      if constexpr (!Unit::kIsDirect) LoadCodes(unit, next, place);
      x_factors.Load(XScalesOf<kLast>(ring, place));
      Step::Finish(partial[kLast % 2]);
      if constexpr (Unit::kIsDirect) LoadCodes(unit, next, place);
      unit.Decode(0, a[0]);
      StartPart<0>(next, partial[0]);
      PromotePart<kLast>(scales, x_factors, partial[kLast % 2]);
      GiveBack(ring, slabs, place);
      ring = next;
    }
  }

  // From `kPart` on.
  template <int kPart>
  __device__ void FinishAllButLast(const Ring& ring, const float (&scales)[kSumsPerSlab][2],
                                   const Place& place,
                                   typename Step::Partial (&partial)[2][kPartSums]) {
    if constexpr (kPart < kParts) {
      StartPart<kPart>(ring, partial[kPart % 2]);
      typename Step::template XFactors<kPartSums> x_factors;  // read while the matrix unit works
      x_factors.Load(XScalesOf<kPart - 1>(ring, place));
      ptx::WgmmaWait<1>();
      PromotePart<kPart - 1>(scales, x_factors, partial[(kPart - 1) % 2]);
      FinishAllButLast<kPart + 1>(ring, scales, place, partial);
    }
  }

  // Part p: the columns of sum p / kTokenParts, tokens of part p % kTokenParts.
  template <int kPart>
  __device__ void StartPart(const Ring& ring, typename Step::Partial (&partial)[kPartSums]) {
    constexpr int kFirstStep = kPart / kTokenParts * kStepsPerSum;
    const uint64_t b = ptx::SwizzledTileDescriptor(
        ring.activations() + kPart % kTokenParts * kPartTokens * PackedLayout::kSlabRowBytes);
    Pin(a[0], kFirstStep, kStepsPerSum);
    ptx::WgmmaFence();
    GEMMD_UNROLL
    for (int s = kFirstStep; s < kFirstStep + kStepsPerSum; ++s) {
      Step::template Multiply<kPartTokens>(a[0][s], b + s * ptx::kDescriptorStep,
                                           s == kFirstStep ? 0 : 1, partial);
    }
    ptx::WgmmaCommit();
  }

  template <int kPart>
  __device__ static const float* XScalesOf(const Ring& ring, const Place& place) {
    const int first_token = kPart % kTokenParts * kPartTokens + place.thread % 4 * 2;
    return ring.placed_x_scales() + first_token * Tile::kXScaleStride;
  }

  template <int kPart>
  __device__ void PromotePart(const float (&scales)[kSumsPerSlab][2],
                              const typename Step::template XFactors<kPartSums>& x_factors,
                              typename Step::Partial (&partial)[kPartSums]) {
    GEMMD_UNROLL
    for (int i = 0; i < kPartSums; ++i) ptx::PinRegister(partial[i]);
    Step::template Promote<kPart % kTokenParts * kPartSums>(scales[kPart / kTokenParts], x_factors, partial,
                                                            sum);
  }

  __device__ static void Pin(Operands& operands, int first, int count) {
    GEMMD_UNROLL
    for (int s = first; s < first + count; ++s) {
      GEMMD_UNROLL
      for (int i = 0; i < 4; ++i) ptx::PinRegister(operands[s][i]);
    }
  }

  Operands a[kOperandSets];
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_SLAB_PRODUCT_SM90_CUH_
