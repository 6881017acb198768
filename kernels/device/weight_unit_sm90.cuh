// What    One unit (64 rows, 128 columns) of packed weights in shared memory, as one thread of a
//         warpgroup sees it: codes, decoded to fragment A, and scales of its two rows.
// Shapes  contract/packed_weights.h.
// Sync    None: reads of shared memory; the stage is complete.
#ifndef GEMMD_KERNELS_DEVICE_WEIGHT_UNIT_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_WEIGHT_UNIT_SM90_CUH_

#include "kernels/contract/quant_spec.h"
#include "kernels/device/decode_int4_sm90.cuh"
#include "kernels/device/decode_number.cuh"
#include "kernels/device/ptx/widen_float16.cuh"
#include "kernels/device/sm90_tile.cuh"

namespace gemmd::device {

template <class Config>
struct WeightUnitSm90 {
  using Tile = Sm90Tile<Config>;
  using Decode = DecodeInt4Sm90<Config::kXType>;
  static constexpr int kSlabs = PackedLayout::kSlabsPerChunk;
  static constexpr int kStepsPerSlab = PackedLayout::kSlabColumns / 16;
  static constexpr int kSets = Tile::Layout().sets();
  static constexpr int kScaleBytes = Config::kGroupScale.bits / 8;

  uint4 codes[kSlabs];
  float scales[kSets][2];
  uint32_t offsets[kSets][2];

  __device__ void Load(const char* unit, int lane) {
    const auto* packed = reinterpret_cast<const uint4*>(unit + Tile::Layout().code_offset());
    GEMMD_UNROLL
    for (int slab = 0; slab < kSlabs; ++slab) codes[slab] = packed[slab * 128 + lane];
    const int pair = lane / 32 * 8 + lane % 32 / 4;
    GEMMD_UNROLL
    for (int set = 0; set < kSets; ++set) {
      LoadScales(unit, set, pair);
      LoadOffsets(unit, set, pair);
    }
  }

  __device__ void DecodeSlab(int slab, uint32_t (&a)[kStepsPerSlab][4]) const {
    const uint32_t words[4] = {codes[slab].x, codes[slab].y, codes[slab].z, codes[slab].w};
    GEMMD_UNROLL
    for (int step = 0; step < kStepsPerSlab; ++step) {
      const int set = (slab * PackedLayout::kSlabColumns + step * 16) / Config::kScaleStep;
      Decode::Decode(words[step], offsets[set], a[step]);
    }
  }

 private:
  __device__ void LoadScales(const char* unit, int set, int pair) {
    if constexpr (kScaleBytes == 0) {
      scales[set][0] = scales[set][1] = 1;
    } else if constexpr (kScaleBytes == 4) {
      const float2 both = reinterpret_cast<const float2*>(unit)[set * 32 + pair];
      scales[set][0] = both.x;
      scales[set][1] = both.y;
    } else {
      const uint32_t both = reinterpret_cast<const uint32_t*>(unit)[set * 32 + pair];
      scales[set][0] = Widen(both & 0xffffu);
      scales[set][1] = Widen(both >> 16);
    }
  }

  __device__ void LoadOffsets(const char* unit, int set, int pair) {
    if constexpr (Config::kZeroPoint == ZeroPointKind::kInteger) {
      const auto* pairs =
          reinterpret_cast<const uint16_t*>(unit + Tile::Layout().zero_point_offset());
      const uint32_t both = pairs[set * 32 + pair];
      offsets[set][0] = Decode::Offset(both & 0xffu);
      offsets[set][1] = Decode::Offset(both >> 8);
    } else {
      offsets[set][0] = offsets[set][1] = Decode::Offset(1u << (Config::kWeight.bits - 1));
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
