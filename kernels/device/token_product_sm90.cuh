// What    Sums of one warpgroup over the slabs of a tile, for 8-bit weights that need no decoding and whose
//         rows share their scales: x is wgmma's first operand, so that a thread's sums belong to two
//         tokens and need two factors a slab. Both operands come from shared memory.
//           sum += scale * sum of a slab, in float32, while the next slab is multiplied; with two blocks of
//           tokens while the other warpgroup multiplies, and then of two slabs where no scale changes.
// Shapes  A warpgroup has kBlocks times 64 tokens by kRows rows of w: from 128 tokens on the tokens are
//         dealt out, else the rows. sum[block]: fragment D of ptx::WgmmaM64K32 with tokens for rows.
// Sync    The whole warpgroup. Stages are given back once nothing reads them; the last one of a
//         tile is not. Returns with nothing in flight.
#ifndef GEMMD_KERNELS_DEVICE_TOKEN_PRODUCT_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_TOKEN_PRODUCT_SM90_CUH_

#include "kernels/device/decode_number.cuh"
#include "kernels/device/matrix_step_sm90.cuh"
#include "kernels/device/stage_ring_sm90.cuh"

namespace gemmd::device {

// Which part of a block's tile a warpgroup has.
template <class Config>
struct TokenPlaceSm90 {
  using Tile = Sm90Tile<Config>;
  static constexpr bool kDealsTokens = Config::kTokens >= 128;
  static constexpr int kTokens = kDealsTokens ? Config::kTokens / Tile::kMathGroups : Config::kTokens;
  static constexpr int kRows = kDealsTokens ? Tile::kRows : Tile::kRows / Tile::kMathGroups;
  static constexpr int kBlockTokens = 64;
  static constexpr int kBlocks = kTokens / kBlockTokens;
  static_assert(kTokens == kBlocks * kBlockTokens && kBlocks <= 2, "whole blocks of tokens");

  __device__ static int FirstToken(int group) { return kDealsTokens ? group * kTokens : 0; }
  __device__ static int FirstRow(int group) { return kDealsTokens ? 0 : group * kRows; }
};

template <class Config>
struct TokenProductSm90 {
  using Tile = Sm90Tile<Config>;
  using Step = MatrixStepSm90<Config>;
  using Ring = StageRingSm90<Config>;
  using Mine = TokenPlaceSm90<Config>;
  using Sum = float;
  static constexpr int kSums = Mine::kRows / 2;
  static_assert(Tile::kUnitBytes == Tile::Unit().slab_bytes(), "the tile's rows follow each other");
  static_assert(Mine::kRows <= 128, "two sums at a time");

  // The warpgroup in its block.
  struct Place {
    int group;
    int thread;
    uint32_t first_rank;  // of the blocks that share x
  };

  Sum sum[Mine::kBlocks][kSums];

  // Of `slabs` stages, one or more; `ring` is left at the last one.
  __device__ void Multiply(Ring& ring, int32_t slabs, const Place& place) {
    GEMMD_UNROLL
    for (int block = 0; block < Mine::kBlocks; ++block) {
      GEMMD_UNROLL
      for (int i = 0; i < kSums; ++i) sum[block][i] = 0;
    }
    if constexpr (Mine::kBlocks == 1) {
      MultiplyAhead(ring, slabs, place);
    } else {
      MultiplyInTurn(ring, slabs, place);
    }
  }

 private:
  using Partial = typename Step::Partial;

  // Sums that have the same factors are promoted every two slabs.
  static constexpr bool kPairsSlabs = !Config::kHasXScales && !Config::kSharesScales;

  __device__ void MultiplyInTurn(Ring& ring, int32_t slabs, const Place& place) {
    if constexpr (kPairsSlabs) {
      for (; slabs > 1; ring.Advance()) {
        MultiplyPair(ring, place);
        slabs -= 2;
        if (slabs == 0) return;
        ring.ArriveEmpty(place.thread % 32, place.first_rank);
      }
      MultiplySlab(ring, place);
    } else {
      for (;; ring.Advance()) {
        MultiplySlab(ring, place);
        if (--slabs == 0) return;
        ring.ArriveEmpty(place.thread % 32, place.first_rank);
      }
    }
  }

  __device__ void MultiplySlab(const Ring& ring, const Place& place) {
    Partial partial[kSums];
    ring.WaitFull(/*x_by_ordinary_copies=*/false);
    GEMMD_UNROLL
    for (int block = 0; block < Mine::kBlocks; ++block) {
      Start(ring, place, block, 0, partial);
      const Factors factors = Factors::Of(ring, place, block);
      ptx::WgmmaWait<0>();
      Add(factors, partial, sum[block]);
    }
  }

  // The slabs of `ring` and of the stage behind it, where it is left; the first one is given back.
  __device__ void MultiplyPair(Ring& ring, const Place& place) {
    Partial partial[kSums];
    const Ring first = ring;
    ring.Advance();
    first.WaitFull(/*x_by_ordinary_copies=*/false);
    Start(first, place, 0, 0, partial);
    ring.WaitFull(/*x_by_ordinary_copies=*/false);
    Start(ring, place, 0, 1, partial);
    ptx::WgmmaWait<0>();
    Add(Factors(), partial, sum[0]);
    Start(first, place, 1, 0, partial);
    Start(ring, place, 1, 1, partial);
    ptx::WgmmaWait<1>();
    first.ArriveEmpty(place.thread % 32, place.first_rank);
    ptx::WgmmaWait<0>();
    Add(Factors(), partial, sum[1]);
  }

  __device__ void MultiplyAhead(Ring& ring, int32_t slabs, const Place& place) {
    Partial partial[2][kSums];
    ring.WaitFull(/*x_by_ordinary_copies=*/false);
    Start(ring, place, 0, 0, partial[0]);
    for (; slabs > 2; slabs -= 2) {
      StartNextAndAdd(ring, place, partial[1], partial[0]);
      StartNextAndAdd(ring, place, partial[0], partial[1]);
    }
    if (slabs == 2) {
      StartNextAndAdd(ring, place, partial[1], partial[0]);
      AddLast(ring, place, partial[1]);
    } else {
      AddLast(ring, place, partial[0]);
    }
  }

  // Factors of the thread's two tokens of a block.
  struct Factors {
    float of[2] = {1, 1};

    __device__ static Factors Of(const Ring& ring, const Place& place, int block) {
      Factors factors;
      if constexpr (Config::kHasXScales) {
        const int token = Mine::FirstToken(place.group) + block * Mine::kBlockTokens +
                          place.thread / 32 * 16 + place.thread % 32 / 4;
        const float* const scales = ring.placed_x_scales() + token * Tile::kXScaleStride;
        factors.of[0] = scales[0];
        factors.of[1] = scales[8 * Tile::kXScaleStride];
      }
      if constexpr (Config::kSharesScales) {
        const float of_w = LoadNumber<Config::kGroupScale>(ring.shared_scale_bytes(), 0);
        factors.of[0] *= of_w;
        factors.of[1] *= of_w;
      }
      return factors;
    }
  };

  __device__ void StartNextAndAdd(Ring& ring, const Place& place, Partial (&next)[kSums],
                                  Partial (&now)[kSums]) {
    const Ring before = ring;
    ring.Advance();
    ring.WaitFull(/*x_by_ordinary_copies=*/false);
    Start(ring, place, 0, 0, next);
    const Factors factors = Factors::Of(before, place, 0);
    ptx::WgmmaWait<1>();
    before.ArriveEmpty(place.thread % 32, place.first_rank);
    Add(factors, now, sum[0]);
  }

  __device__ void AddLast(const Ring& ring, const Place& place, Partial (&now)[kSums]) {
    const Factors factors = Factors::Of(ring, place, 0);
    ptx::WgmmaWait<0>();
    Add(factors, now, sum[0]);
  }

  __device__ static void Add(const Factors& factors, Partial (&partial)[kSums], Sum (&to)[kSums]) {
    GEMMD_UNROLL
    for (int i = 0; i < kSums; ++i) ptx::PinRegister(partial[i]);
    GEMMD_UNROLL
    for (int i = 0; i < kSums; ++i) {
      to[i] += factors.of[i / 2 % 2] * static_cast<float>(partial[i]);
    }
  }

  __device__ static void Start(const Ring& ring, const Place& place, int block,
                               int accumulate, Partial (&d)[kSums]) {
    const int first_token = Mine::FirstToken(place.group) + block * Mine::kBlockTokens;
    const uint64_t x = ptx::SwizzledTileDescriptor(ring.activations() +
                                                   first_token * PackedLayout::kSlabRowBytes);
    const uint64_t w = ptx::SwizzledTileDescriptor(
        ring.weights() + Mine::FirstRow(place.group) * PackedLayout::kSlabRowBytes);
    GEMMD_UNROLL
    for (int i = 0; i < kSums; ++i) ptx::PinRegister(d[i]);
    ptx::WgmmaFence();
    GEMMD_UNROLL
    for (int s = 0; s < PackedLayout::kStepsPerSlab; ++s) {
      Step::template MultiplyTokens<Mine::kRows>(x + s * ptx::kDescriptorStep,
                                                 w + s * ptx::kDescriptorStep,
                                                 s == 0 ? accumulate : 1, d);
    }
    ptx::WgmmaCommit();
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_TOKEN_PRODUCT_SM90_CUH_
