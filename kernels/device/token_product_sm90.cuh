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
#include "kernels/device/ptx/uniform_descriptor.cuh"
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
    first_x_ = Descriptor::Of(ring.first_activations() +
                              Mine::FirstToken(place.group) * PackedLayout::kSlabRowBytes);
    first_w_ = Descriptor::Of(ring.first_weights() + Mine::FirstRow(place.group) * PackedLayout::kSlabRowBytes);
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
  using Descriptor = ptx::UniformTileDescriptor;

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
    Factors factors;
    ring.WaitFull(/*x_by_ordinary_copies=*/false);
    GEMMD_UNROLL
    for (int block = 0; block < Mine::kBlocks; ++block) {
      Start(ring, block, 0, partial);
      if (block == 0) factors.Load(ring, place);
      ptx::WgmmaWait<0>();
      Add(factors.of[block], partial, sum[block]);
    }
  }

  // The slabs of `ring` and of the stage behind it, where it is left; the first one is given back.
  __device__ void MultiplyPair(Ring& ring, const Place& place) {
    Partial partial[kSums];
    const Ring first = ring;
    ring.Advance();
    const Factors ones;
    first.WaitFull(/*x_by_ordinary_copies=*/false);
    Start(first, 0, 0, partial);
    ring.WaitFull(/*x_by_ordinary_copies=*/false);
    Start(ring, 0, 1, partial);
    ptx::WgmmaWait<0>();
    Add(ones.of[0], partial, sum[0]);
    Start(first, 1, 0, partial);
    Start(ring, 1, 1, partial);
    ptx::WgmmaWait<1>();
    first.ArriveEmpty(place.thread % 32, place.first_rank);
    ptx::WgmmaWait<0>();
    Add(ones.of[1], partial, sum[1]);
  }

  __device__ void MultiplyAhead(Ring& ring, int32_t slabs, const Place& place) {
    Partial partial[2][kSums];
    ring.WaitFull(/*x_by_ordinary_copies=*/false);
    Start(ring, 0, 0, partial[0]);
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

  using BlockFactors = float[2];  // of the thread's two tokens

  // All of a slab at once: where they lie is read from the stage first, and the first block's instructions hide that.
  struct Factors {
    BlockFactors of[Mine::kBlocks];

    __device__ Factors() {
      GEMMD_UNROLL
      for (int block = 0; block < Mine::kBlocks; ++block) of[block][0] = of[block][1] = 1;
    }
    __device__ void Load(const Ring& ring, const Place& place) {
      if constexpr (Config::kHasXScales) {
        const int token = Mine::FirstToken(place.group) + place.thread / 32 * 16 + place.thread % 32 / 4;
        const float* scales = ring.placed_x_scales() + token * Tile::kXScaleStride;
        GEMMD_UNROLL
        for (int block = 0; block < Mine::kBlocks; ++block, scales += Mine::kBlockTokens * Tile::kXScaleStride) {
          of[block][0] = scales[0];
          of[block][1] = scales[8 * Tile::kXScaleStride];
        }
      }
      if constexpr (Config::kSharesScales) {
        const float of_w = LoadNumber<Config::kGroupScale>(ring.shared_scale_bytes(), 0);
        GEMMD_UNROLL
        for (int block = 0; block < Mine::kBlocks; ++block) {
          of[block][0] *= of_w;
          of[block][1] *= of_w;
        }
      }
    }
  };

  __device__ void StartNextAndAdd(Ring& ring, const Place& place, Partial (&next)[kSums],
                                  Partial (&now)[kSums]) {
    const Ring before = ring;
    ring.Advance();
    ring.WaitFull(/*x_by_ordinary_copies=*/false);
    Start(ring, 0, 0, next);
    Factors factors;
    factors.Load(before, place);
    ptx::WgmmaWait<1>();
    before.ArriveEmpty(place.thread % 32, place.first_rank);
    Add(factors.of[0], now, sum[0]);
  }

  __device__ void AddLast(const Ring& ring, const Place& place, Partial (&now)[kSums]) {
    Factors factors;
    factors.Load(ring, place);
    ptx::WgmmaWait<0>();
    Add(factors.of[0], now, sum[0]);
  }

  __device__ static void Add(const BlockFactors& factors, Partial (&partial)[kSums], Sum (&to)[kSums]) {
    GEMMD_UNROLL
    for (int i = 0; i < kSums; ++i) ptx::PinRegister(partial[i]);
    GEMMD_UNROLL
    for (int i = 0; i < kSums; ++i) {
      to[i] += factors[i / 2 % 2] * static_cast<float>(partial[i]);
    }
  }

  __device__ void Start(const Ring& ring, int block, int accumulate, Partial (&d)[kSums]) const {
    const Descriptor x = first_x_.Plus(ring.stage() * Tile::kActivationBytes +
                                       block * Mine::kBlockTokens * PackedLayout::kSlabRowBytes);
    const Descriptor w = first_w_.Plus(ring.stage() * Tile::kWeightBytes);
    GEMMD_UNROLL
    for (int i = 0; i < kSums; ++i) ptx::PinRegister(d[i]);
    ptx::WgmmaFence();
    GEMMD_UNROLL
    for (int s = 0; s < PackedLayout::kStepsPerSlab; ++s) {
      Step::template MultiplyTokens<Mine::kRows>(x.Plus(s * kStepBytes).descriptor(),
                                                 w.Plus(s * kStepBytes).descriptor(),
                                                 s == 0 ? accumulate : 1, d);
    }
    ptx::WgmmaCommit();
  }

  static constexpr int kStepBytes = static_cast<int>(ptx::kDescriptorStep) << 4;
  Descriptor first_x_;  // of the warpgroup's operands in stage 0
  Descriptor first_w_;
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_TOKEN_PRODUCT_SM90_CUH_
