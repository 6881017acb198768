// What    Sums of one warpgroup over its chunks: decode, wgmma over the columns of one scale from
//         zero, then sum += scale * partial sum in float32.
// Shapes  sum: fragment D of ptx::WgmmaM64K16. Integers whose scales come last stay integers.
// Sync    Multiply is called with the unit's scales and the first slab's registers ready; while the
//         matrix unit works it decodes the second slab, and loads the next chunk's scales and codes
//         (`next`: Wait, then LoadCodes). Returns with nothing in flight.
#ifndef GEMMD_KERNELS_DEVICE_GROUP_PRODUCT_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_GROUP_PRODUCT_SM90_CUH_

#include "kernels/device/matrix_step_sm90.cuh"
#include "kernels/device/weight_unit_sm90.cuh"

namespace gemmd::device {

template <class Config>
struct GroupProductSm90 {
  using Tile = Sm90Tile<Config>;
  using Unit = WeightUnitSm90<Config>;
  static constexpr int kFloats = Config::kTokens / 2;
  static constexpr int kSlabs = PackedLayout::kSlabsPerChunk;
  static constexpr int kSteps = PackedLayout::kStepsPerSlab;
  static constexpr int kStepsPerChunk = kSlabs * kSteps;

  // Instructions whose sum has one factor.
  static constexpr int kStepsPerScale =
      Config::kScaleOnWeights ? kStepsPerChunk : Config::kScaleStep / Tile::Layout().step_columns();
  static constexpr int kStepsPerSum =
      Config::kHasXScales ? Min(kStepsPerScale, kSteps) : kStepsPerScale;
  static constexpr int kStepsPerBatch = Min(kStepsPerSum, kSteps);
  static constexpr bool kOneSum = kStepsPerSum == kStepsPerChunk;

  using Step = MatrixStepSm90<Config>;
  using Partial = typename Step::Partial;
  using Sum = typename Step::Sum;
  using XFactors = typename Step::template XFactors<kFloats>;

  Sum sum[kFloats];
  uint32_t a[kSlabs][kSteps][4];

  __device__ void Clear() {
    GEMMD_UNROLL
    for (int i = 0; i < kFloats; ++i) sum[i] = 0;
  }

  // The chunk in shared memory.
  struct Chunk {
    const char* unit;
    uint32_t activations;
    const float* x_scales;  // of the thread's first token, per slab [kTokens]
    bool has_second_slab;
  };

  template <class Next>
  __device__ void Multiply(Unit& unit, const Chunk& chunk, int thread, bool has_next, Next next) {
    if constexpr (Unit::kIsDirect) unit.LoadSecondSlab(chunk.unit, thread, chunk.has_second_slab);
    if constexpr (Step::kSumsInUnit) {
      MultiplyInOneSum(unit, chunk, has_next, next, sum);
    } else if constexpr (kOneSum) {
      Partial partial[kFloats];
      const float scales[2] = {unit.SumScale(0, 0), unit.SumScale(0, 1)};
      MultiplyInOneSum(unit, chunk, has_next, next, partial);
      Step::template Promote<0>(scales, XFactors(), partial, sum);
    } else {
      MultiplyInSums(unit, chunk, has_next, next);
    }
  }

 private:
  template <class Next>
  __device__ void MultiplyInOneSum(Unit& unit, const Chunk& chunk, bool has_next, Next next,
                                   Partial (&partial)[kFloats]) {
    Start(chunk, 0, 0, kSteps, partial);
    unit.Decode(1, a[1]);
    Start(chunk, 1, 0, kSteps, partial);
    if (has_next) {
      next.Wait();
      // Codes that are operands as they are go straight to the registers that wgmma reads.
      if constexpr (!Unit::kIsDirect) next.LoadCodes();
      ptx::WgmmaWait<1>();
      if constexpr (Unit::kIsDirect) next.LoadCodes();
      unit.Decode(0, a[0]);
    }
    Step::Finish(partial);
  }

  template <class Next>
  __device__ void MultiplyInSums(Unit& unit, const Chunk& chunk, bool has_next, Next next) {
    Partial partial[kFloats];
    float scales[Unit::kSets][2];
    GEMMD_UNROLL
    for (int set = 0; set < Unit::kSets; ++set) {
      scales[set][0] = unit.SumScale(set, 0);
      scales[set][1] = unit.SumScale(set, 1);
    }
    GEMMD_UNROLL
    for (int step = 0; step < kStepsPerChunk; step += kStepsPerBatch) {
      if (step == kSteps) {  // before, the second slab's operands would take registers for nothing
        unit.Decode(1, a[1]);
        if (has_next) {
          next.Wait();
          next.LoadCodes();
        }
      }
      Start(chunk, step / kSteps, step % kSteps, kStepsPerBatch, partial);
      Step::Finish(partial);
      if ((step + kStepsPerBatch) % kStepsPerSum != 0) continue;
      const float* x_scales = chunk.x_scales + step / kSteps * Config::kTokens;
      XFactors x_factors;
      x_factors.Load(x_scales);
      Step::template Promote<0>(
          scales[Config::kScaleOnWeights ? 0 : step / kStepsPerScale], x_factors, partial, sum);
    }
    if (has_next) unit.Decode(0, a[0]);
  }

  // Starts `count` instructions of a slab as one group; the first of a sum starts from zero.
  __device__ void Start(const Chunk& chunk, int slab, int step, int count,
                        Partial (&partial)[kFloats]) {
    const uint64_t b = ptx::SwizzledTileDescriptor(chunk.activations + slab * Tile::kSlabTileBytes);
    const bool starts = !Step::kSumsInUnit && (slab * kSteps + step) % kStepsPerSum == 0;
    GEMMD_UNROLL
    for (int s = step; s < step + count; ++s) {
      GEMMD_UNROLL
      for (int i = 0; i < 4; ++i) ptx::PinRegister(a[slab][s][i]);
    }
    ptx::WgmmaFence();
    GEMMD_UNROLL
    for (int s = step; s < step + count; ++s) {
      const bool from_zero = s == step && starts;
      Step::template Multiply<Config::kTokens>(a[slab][s], b + s * ptx::kDescriptorStep,
                                               from_zero ? 0 : 1, partial);
    }
    ptx::WgmmaCommit();
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_GROUP_PRODUCT_SM90_CUH_
