// What    One unit (64 rows, 2 slabs of columns) of packed weights in shared memory, as one thread
//         of a warpgroup sees it: codes decoded to fragment A, and scales of its two rows.
// Shapes  contract/packed_weights.h.
// Sync    None: reads of shared memory; the stage is complete.
#ifndef GEMMD_KERNELS_DEVICE_WEIGHT_UNIT_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_WEIGHT_UNIT_SM90_CUH_

#include "kernels/contract/quant_spec.h"
#include "kernels/device/decode_bytes_sm90.cuh"
#include "kernels/device/decode_number.cuh"
#include "kernels/device/decode_pairs_sm90.cuh"
#include "kernels/device/ptx/async_copy.cuh"
#include "kernels/device/ptx/load_matrix.cuh"
#include "kernels/device/ptx/narrow_float16.cuh"
#include "kernels/device/ptx/wgmma_sync.cuh"
#include "kernels/device/ptx/widen_float16.cuh"
#include "kernels/device/sm90_tile.cuh"

namespace gemmd::device {

// Registers of one slab of fragment A, by decode part.
template <class Config, bool kIsWide>
struct SlabDecoderSm90;

template <class Config>
struct SlabDecoderSm90<Config, true> : DecodePairsSm90<Config> {};
template <class Config>
struct SlabDecoderSm90<Config, false> : DecodeBytesSm90<Config> {};

template <class Config>
struct WeightUnitSm90 {
  using Tile = Sm90Tile<Config>;
  static constexpr bool kIsWide = Tile::Operand().is_wide();
  using Decoder = SlabDecoderSm90<Config, kIsWide>;
  static constexpr int kSteps = PackedLayout::kStepsPerSlab;
  static constexpr int kSets = Tile::Unit().sets();
  static constexpr int kScaleBytes = Config::kGroupScale.bits / 8;
  static constexpr bool kOnWeights = Config::kScaleOnWeights;
  // Codes are the operands.
  static constexpr bool kIsDirect = Tile::kIsDirect;
  static constexpr bool kIsInteger = Tile::Operand().is_integer_weight();
  // Weights are code * scale + offset in float32, rounded once.
  static constexpr bool kIsLine = Config::kZeroPoint == ZeroPointKind::kFloat;
  static_assert(!kIsLine || (kIsWide && kOnWeights && Config::kGroupScale == kFloat32), "kernels/pack packs them so");
  // Scales are in the one fma that decodes a weight.
  static constexpr bool kFusesScales =
      kOnWeights && !kIsLine &&
      Tile::Operand().can_fuse(Config::kZeroPoint == ZeroPointKind::kInteger, kSets);
  static_assert(!Tile::Operand().is_raised() || !kOnWeights || Config::kScaleIsRelative,
                "raised codes times scales of 2 and more may be infinite");

  // Whether some code decodes to NaN or infinity.
  static constexpr bool kMayBeSpecial =
      kIsWide ? (Config::kXType == ElementType::kFloat16 || kIsDirect) &&
                    Config::kWeight.special == SpecialValues::kIeee
              : Config::kWeight.special != SpecialValues::kNone;
  // Direct codes move to fragment A at once, so that one slab's are held at a time.
  static constexpr int kHeldSlabs = kIsDirect ? 1 : Tile::Unit().slabs;

  SlabCodesSm90<Tile> codes[kHeldSlabs];
  float scales[kSets][2];  // for the sums, or of lines
  float line_offsets[kIsLine ? kSets : 1][2];
  uint32_t weight_scales[kSets]
                        [2];  // for the weights: twice in a register in x's type, or folded steps
  uint32_t offsets[kSets][2];
  uint32_t scales_beside[kFusesScales ? kSets : 1][2];  // weight_scales of lanes beside others

  // Direct codes: those of the first slab.
  __device__ void LoadCodes(const char* unit, int thread, bool has_second_slab) {
    LoadSlab(unit + Tile::Unit().code_offset(), thread, codes[0]);
    if constexpr (kHeldSlabs > 1) LoadSecondSlab(unit, thread, has_second_slab);
  }
  // A slab that K does not reach meets zeros of x: any finite weight does, and bits of other units are
  // read. Where bits may be NaN or infinite, it is zeros.
  __device__ void LoadSecondSlab(const char* unit, int thread, bool has_second_slab) {
    SlabCodesSm90<Tile>& to = codes[kHeldSlabs - 1];
    if (has_second_slab || !kMayBeSpecial) {
      LoadSlab(unit + Tile::Unit().code_offset() + Tile::Unit().slab_bytes(), thread, to);
      return;
    }
    GEMMD_UNROLL
    for (int i = 0; i < SlabCodesSm90<Tile>::kWords; ++i) to.words[i] = 0;
  }

  // Decode comes after this line.
  __device__ void PinCodes() {
    GEMMD_UNROLL
    for (int slab = 0; slab < kHeldSlabs; ++slab) {
      GEMMD_UNROLL
      for (int i = 0; i < SlabCodesSm90<Tile>::kWords; ++i) ptx::PinRegister(codes[slab].words[i]);
    }
  }

  __device__ float SumScale(int set, int row_half) const {
    return kOnWeights || Config::kSharesScales ? 1.0f : scales[set][row_half];
  }

  __device__ void LoadScales(const char* unit, int thread) {
    const int pair = thread / 32 * 8 + thread % 32 / 4;
    GEMMD_UNROLL
    for (int set = 0; set < kSets; ++set) {
      LoadScale(unit, set, pair);
      LoadOffset(unit, set, pair);
    }
  }

  __device__ void Decode(int slab, uint32_t (&a)[kSteps][4]) const { DecodeSteps(slab, 0, kSteps, a); }

  // `count` steps from `first` on.
  __device__ void DecodeSteps(int slab, int first, int count, uint32_t (&a)[kSteps][4]) const {
    GEMMD_UNROLL
    for (int step = first; step < first + count; ++step) {
      const int column =
          slab * Tile::Unit().slab_columns() + step * Tile::Unit().step_columns();
      DecodeStep(codes[Min(slab, kHeldSlabs - 1)], step, column / Tile::Unit().scale_step, a[step]);
    }
  }

 private:
  __device__ static void LoadSlab(const char* slab, int thread, SlabCodesSm90<Tile>& to) {
    if constexpr (kIsDirect) {
      LoadTile(slab, thread, to);
    } else {
      to.Load(slab, thread);
    }
  }

  // Fragment A out of a tile (PackedLayout::TileOffset), 16 rows a warp.
  __device__ static void LoadTile(const char* slab, int thread, SlabCodesSm90<Tile>& to) {
    const int row = thread / 32 * 16 + thread % 16;
    const uint32_t address = ptx::SharedAddress(slab) + row * PackedLayout::kSlabRowBytes;
    GEMMD_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      const uint32_t sixteen = 2 * step + thread / 16 % 2;
      uint32_t a[4];
      ptx::LoadMatrices(address + ((sixteen ^ (row % 8)) << 4), a);
      GEMMD_UNROLL
      for (int i = 0; i < 4; ++i) to.words[4 * step + i] = a[i];
    }
  }

  __device__ void DecodeStep(const SlabCodesSm90<Tile>& from, int step, int set,
                             uint32_t (&a)[4]) const {
    if constexpr (kIsWide) {
      GEMMD_UNROLL
      for (int i = 0; i < 4; ++i) {
        const uint32_t scale = kIsLine ? 0 : weight_scales[set][i % 2];
        if constexpr (kIsLine) {
          a[i] = Decoder::DecodeLine(from, 4 * step + i, scales[set][i % 2], line_offsets[set][i % 2]);
        } else if constexpr (kFusesScales) {
          a[i] = Decoder::DecodeFused(from, 4 * step + i, scale, scales_beside[set][i % 2],
                                      offsets[set][i % 2]);
        } else if constexpr (kOnWeights && Config::kScaleIsRelative && !kIsInteger) {
          a[i] = Decoder::DecodeRaised(from, 4 * step + i, scale);
        } else if constexpr (kOnWeights) {
          a[i] = Decoder::DecodeScaled(from, 4 * step + i, offsets[set][i % 2], scale);
        } else {
          a[i] = Decoder::Decode(from, 4 * step + i, offsets[set][i % 2]);
        }
      }
    } else {
      GEMMD_UNROLL
      for (int pair = 0; pair < 2; ++pair) {
        uint32_t two[2];
        if constexpr (kOnWeights) {
          Decoder::DecodeTwoFolded(from, 2 * step + pair, weight_scales[set], two);
        } else {
          Decoder::DecodeTwo(from, 2 * step + pair, offsets[set], two);
        }
        a[2 * pair] = two[0];
        a[2 * pair + 1] = two[1];
      }
    }
  }

  __device__ void LoadScale(const char* unit, int set, int pair) {
    const char* const scales_of_unit = unit + Tile::Unit().scale_offset();
    if constexpr (kScaleBytes == 0 || Config::kSharesScales) {
      scales[set][0] = scales[set][1] = 1;
    } else if constexpr (kScaleBytes == 1) {
      const uint32_t both = reinterpret_cast<const uint16_t*>(scales_of_unit)[set * 32 + pair];
      weight_scales[set][0] = both & 0xffu;
      weight_scales[set][1] = both >> 8;
    } else if constexpr (kScaleBytes == 4) {
      const float2 both = reinterpret_cast<const float2*>(scales_of_unit)[set * 32 + pair];
      scales[set][0] = both.x;
      scales[set][1] = both.y;
    } else {
      const uint32_t both = reinterpret_cast<const uint32_t*>(scales_of_unit)[set * 32 + pair];
      SetScales(set, both);
    }
  }

  __device__ void SetScales(int set, uint32_t both) {
    if constexpr (!kOnWeights) {
      scales[set][0] = Widen(both & 0xffffu);
      scales[set][1] = Widen(both >> 16);
    } else if constexpr (kFusesScales) {
      SetTwice(Decoder::Scaled(both, Decoder::RaisingPower(0)), weight_scales[set]);
      SetTwice(Decoder::Scaled(both, Decoder::RaisingPower(Decoder::kBeside)), scales_beside[set]);
      SetTwice(Decoder::Scaled(both, Decoder::Offset(Decoder::kHalf)), offsets[set]);
    } else {
      constexpr bool kIsRaisedFloat = Config::kScaleIsRelative && !kIsInteger;
      SetTwice(kIsRaisedFloat ? RaisedScales(both) : both, weight_scales[set]);
    }
  }
  // Either half of a pair twice in a register.
  __device__ static void SetTwice(uint32_t pair, uint32_t (&to)[2]) {
    to[0] = ptx::PermuteBytes(pair, 0, 0x1010);
    to[1] = ptx::PermuteBytes(pair, 0, 0x3232);
  }

  // Two bfloat16 scales times what Decoder::DecodeRaised leaves off, in x's type.
  __device__ static uint32_t RaisedScales(uint32_t both) {
    if constexpr (Config::kXType == ElementType::kBFloat16) {
      constexpr uint32_t kPower = static_cast<uint32_t>(127 + Decoder::kDebt) << 7;
      return ptx::MultiplyPairs<ElementType::kBFloat16>(both, kPower * 0x00010001u);
    } else {
      constexpr float kPower = 1 << Decoder::kDebt;
      return ptx::NarrowFloat16(Widen(both & 0xffffu) * kPower, Widen(both >> 16) * kPower);
    }
  }

  __device__ void LoadOffset(const char* unit, int set, int pair) {
    if constexpr (kFusesScales) return;  // scaled too
    if constexpr (kIsLine) {
      const auto* pairs = reinterpret_cast<const float2*>(unit + Tile::Unit().zero_point_offset());
      const float2 both = pairs[set * 32 + pair];
      line_offsets[set][0] = both.x;
      line_offsets[set][1] = both.y;
      return;
    }
    if constexpr (Config::kZeroPoint == ZeroPointKind::kInteger) {
      const auto* pairs =
          reinterpret_cast<const uint16_t*>(unit + Tile::Unit().zero_point_offset());
      const uint32_t both = pairs[set * 32 + pair];
      offsets[set][0] = Decoder::Offset(both & 0xffu);
      offsets[set][1] = Decoder::Offset(both >> 8);
    } else {
      offsets[set][0] = offsets[set][1] = Decoder::Offset(1u << (Config::kWeight.bits - 1));
    }
  }

  __device__ static float Widen(uint32_t scale) {
    if constexpr (Config::kGroupScale == kFloat16) {
      return ptx::WidenFloat16(scale);
    } else {
      return NumberDecoder<Config::kGroupScale>::Decode(scale);
    }
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_WEIGHT_UNIT_SM90_CUH_
