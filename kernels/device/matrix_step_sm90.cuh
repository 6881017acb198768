// What    One wgmma of a config's operands, and partial sums times their scales -> float32 sums.
//         Sums of 16-bit products that need no scale before the end of K grow in the matrix unit, in float32
//         or (kHalfSums) float16.
// Shapes  Partial sums and sums: fragment D of ptx::WgmmaM64K16, kTokens rows of x. Integers whose
//         scales come last stay integers; sums of float16 become float32 when they are finished.
// Sync    Multiply as ptx::WgmmaM64K16. The rest touches registers, Promote reads scales of x.
#ifndef GEMMD_KERNELS_DEVICE_MATRIX_STEP_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_MATRIX_STEP_SM90_CUH_

#include "kernels/device/portable.cuh"
#include "kernels/device/ptx/wgmma_m64k16.cuh"
#include "kernels/device/ptx/wgmma_m64k32.cuh"
#include "kernels/device/ptx/wgmma_sync.cuh"
#include "kernels/device/ptx/widen_float16.cuh"
#include "kernels/device/sm90_tile.cuh"

namespace gemmd::device {

// Type of the matrix unit's sums; pairs of float16 are uint32_t.
template <bool kIsInteger, bool kIsHalf = false>
struct AccumulatorSm90 {
  using Type = float;
};
template <>
struct AccumulatorSm90<true, false> {
  using Type = int32_t;
};
template <>
struct AccumulatorSm90<false, true> {
  using Type = uint32_t;
};

template <class Config>
struct MatrixStepSm90 {
  using Tile = Sm90Tile<Config>;
  static constexpr bool kIsInteger = Tile::Operand().is_int8();
  static constexpr bool kKeepsInteger =
      kIsInteger && Config::kGroupScale == kNoFormat && !Config::kHasXScales;
  // Nothing is left to multiply a sum with before the end of K.
  static constexpr bool kSumsInUnit =
      kKeepsInteger ||
      (Tile::Operand().is_wide() && (Config::kScaleOnWeights || Config::kGroupScale == kNoFormat));
  // x is wgmma's first operand: device/token_product_sm90.cuh.
  static constexpr bool kPromotesByToken =
      Config::kStageSlabs == 1 && Tile::kIsDirect && !kSumsInUnit &&
      (Config::kGroupScale == kNoFormat || Config::kSharesScales);
  static_assert(!Config::kSharesScales || kPromotesByToken, "nobody else reads the shared scale");
  static constexpr bool kHalfSums = Config::kHalfSums;
  static_assert(!kHalfSums || (kSumsInUnit && Config::kXType == ElementType::kFloat16 && Config::kStageSlabs == 1),
                "only the unit of gemm_sm90_slab.cuh sums in float16");
  using Partial = typename AccumulatorSm90<kIsInteger, kHalfSums>::Type;
  static constexpr int kTokensPerPartial = kHalfSums ? 4 : 2;  // of a thread's share
  using Sum = typename AccumulatorSm90<kKeepsInteger>::Type;

  // `a`: registers, or the descriptor of a tile in shared memory.
  template <int kTokens, typename A>
  __device__ static void Multiply(const A& a, uint64_t b, int accumulate,
                                  Partial (&d)[kTokens / kTokensPerPartial]) {
    if constexpr (kIsInteger) {
      ptx::WgmmaM64K32Int8<kTokens>(d, a, b, accumulate);
    } else if constexpr (Tile::Operand().is_wide()) {
      ptx::WgmmaM64K16<Config::kXType, kTokens>(d, a, b, accumulate);
    } else {
      constexpr bool kXIsE5M2 = Config::kXType == ElementType::kFloat8E5M2;
      ptx::WgmmaM64K32<Tile::Operand().is_e5m2(), kXIsE5M2, kTokens>(d, a, b, accumulate);
    }
  }

  // The same with x for A: `x`, `w` descriptors of 64 tokens and kRows rows of w in shared memory.
  template <int kRows>
  __device__ static void MultiplyTokens(uint64_t x, uint64_t w, int accumulate,
                                        Partial (&d)[kRows / 2]) {
    if constexpr (kIsInteger) {
      ptx::WgmmaM64K32Int8<kRows>(d, x, w, accumulate);
    } else {
      constexpr bool kXIsE5M2 = Config::kXType == ElementType::kFloat8E5M2;
      ptx::WgmmaM64K32<kXIsE5M2, Tile::Operand().is_e5m2(), kRows>(d, x, w, accumulate);
    }
  }

  // Waits for the wgmma in flight.
  template <int kCount>
  __device__ static void Finish(Partial (&partial)[kCount]) {
    ptx::WgmmaWait<0>();
    GEMMD_UNROLL
    for (int i = 0; i < kCount; ++i) ptx::PinRegister(partial[i]);
  }

  template <int kCount>
  __device__ static void Widen(const uint32_t (&pairs)[kCount], Sum (&sum)[2 * kCount]) {
    GEMMD_UNROLL
    for (int i = 0; i < kCount; ++i) {
      sum[2 * i] = ptx::WidenFloat16(pairs[i]);
      sum[2 * i + 1] = ptx::WidenFloat16(pairs[i] >> 16);
    }
  }

  // Scales of x of the thread's tokens, those of fragment D's kCount elements.
  template <int kCount>
  struct XFactors {
    float2 tokens[Config::kHasXScales ? kCount / 4 : 1];

    // `x_scales`: from the thread's first row of x on.
    __device__ void Load(const float* x_scales) {
      if constexpr (Config::kHasXScales) {
        GEMMD_UNROLL
        for (int j = 0; j < kCount / 4; ++j) {
          if constexpr (Tile::kXScaleStride == 1) {
            tokens[j] = *reinterpret_cast<const float2*>(x_scales + 8 * j);
          } else {
            tokens[j] = {x_scales[8 * j * Tile::kXScaleStride],
                         x_scales[(8 * j + 1) * Tile::kXScaleStride]};
          }
        }
      }
    }
  };

  // sum[kFirst + i] += scale * partial[kFrom + i], kCount of them. `scales`: of the thread's two rows of w.
  template <int kFirst, int kFrom = 0, int kCount, int kPartials, int kSums>
  __device__ static void Promote(const float (&scales)[2], const XFactors<kCount>& x_factors,
                                 const Partial (&partial)[kPartials], Sum (&sum)[kSums]) {
    GEMMD_UNROLL
    for (int j = 0; j < kCount; j += 4) {
      const float2 x = x_factors.tokens[Config::kHasXScales ? j / 4 : 0];
      GEMMD_UNROLL
      for (int c = 0; c < 4; ++c) {
        const float of_x = c % 2 == 0 ? x.x : x.y;
        const float factor = Config::kHasXScales ? scales[c / 2] * of_x : scales[c / 2];
        sum[kFirst + j + c] += factor * static_cast<float>(partial[kFrom + j + c]);
      }
    }
  }
};

// A thread's sums of a tile of the slab kernel.
template <class Config>
struct TileSumsSm90 {
  using Step = MatrixStepSm90<Config>;
  using Sum = typename Step::Sum;
  static constexpr int kSums = Config::kTokens / 2;
  static constexpr int kUnitSums = Config::kTokens / Step::kTokensPerPartial;

  Sum sum[kSums];

  // What the matrix unit adds to where it sums over all of K; else `sum`.
  __device__ auto& InUnit() {
    if constexpr (Step::kHalfSums) {
      return pairs_;
    } else {
      return sum;
    }
  }
  __device__ void Clear() {
    GEMMD_UNROLL
    for (int i = 0; i < kUnitSums; ++i) InUnit()[i] = 0;
  }
  // Waits for the wgmma in flight; `sum` has the sums then.
  __device__ void FinishInUnit() {
    Step::Finish(InUnit());
    if constexpr (Step::kHalfSums) Step::Widen(pairs_, sum);
  }

 private:
  uint32_t pairs_[Step::kHalfSums ? kUnitSums : 1];
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_MATRIX_STEP_SM90_CUH_
