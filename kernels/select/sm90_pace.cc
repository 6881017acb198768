#include "kernels/select/sm90_pace.h"

namespace gemmd {
namespace {

// Of tiles of 64, 128 and 256 tokens.
struct Row {
  Sm90Pace by_tokens[3];

  Sm90Pace For(int tokens) const { return by_tokens[tokens <= 64 ? 0 : tokens <= 128 ? 1 : 2]; }
};

// device/gemm_sm90_slab.cuh. Where no decoded tile of 64 exists, its pace is that of 128.
constexpr Row kSlabInUnit = {{{470, 2800, 3400}, {638, 3600, 5100}, {1098, 5600, 9100}}};
constexpr Row kSlabInParts = {{{877, 4600, 5400}, {877, 4600, 5400}, {1365, 7300, 7600}}};
constexpr Row kSlabInInt8Parts = {{{940, 4600, 5700}, {940, 4600, 5700}, {1600, 7300, 10300}}};
constexpr Row kSlabWithXScales = {{{1150, 5500, 8000}, {1150, 5500, 8000}, {2450, 10500, 8000}}};
constexpr Row kSharedInUnit = {{{573, 1300, 19000}, {715, 2800, 9200}, {1191, 6500, 10400}}};
constexpr Row kSharedInParts = {{{584, 1300, 19000}, {732, 2800, 9200}, {1314, 6500, 10400}}};
constexpr Row kSharedWithXScales = {{{586, 1300, 19000}, {774, 2800, 9200}, {1619, 6500, 10400}}};

// device/gemm_sm90.cuh.
constexpr Row kChunkInUnit = {{{423, 5200, 3000}, {591, 7700, 900}, {1182, 7700, 900}}};
constexpr Row kChunkNarrow = {{{556, 7000, 400}, {782, 10500, 0}, {1564, 10500, 0}}};
constexpr Row kChunkInt8 = {{{760, 7000, 400}, {1282, 10500, 400}, {2564, 10500, 400}}};
constexpr Row kChunkWithXScales = {{{812, 8800, 8000}, {1195, 11000, 8000}, {2390, 11000, 8000}}};
constexpr Row kChunkShared = {{{730, 5700, 3500}, {914, 9400, 1000}, {1828, 9400, 1000}}};
constexpr Row kChunkSharedWithXScales = {{{799, 5700, 3500}, {1185, 9400, 900}, {2370, 9400, 900}}};

const Row& SlabRow(const Sm90Config& config) {
  const bool in_unit = config.sums_in_unit();
  if (config.layout().is_direct()) {
    return in_unit               ? kSharedInUnit
           : config.has_x_scales ? kSharedWithXScales
                                 : kSharedInParts;
  }
  if (in_unit) return kSlabInUnit;
  if (config.has_x_scales) return kSlabWithXScales;
  return config.operand().is_int8() ? kSlabInInt8Parts : kSlabInParts;
}

const Row& ChunkRow(const Sm90Config& config) {
  if (config.layout().is_direct()) {
    return config.has_x_scales ? kChunkSharedWithXScales : kChunkShared;
  }
  if (config.has_x_scales) return kChunkWithXScales;
  if (config.operand().is_wide() && config.sums_in_unit()) return kChunkInUnit;
  return config.operand().is_int8() && !config.sums_in_unit() ? kChunkInt8 : kChunkNarrow;
}

// Codes that are cut into several planes, or of 8 bits, take longer to decode; a tile of many tokens hides it.
double DecodingFactor(const Sm90Config& config) {
  const int bits = config.weight.bits;
  if (bits == 8 && config.operand().is_wide()) return config.is_slabwise() ? 1.04 : 1.15;
  const bool is_in_one = (bits & (bits - 1)) == 0 || config.layout().has_whole_threes();
  if (is_in_one || !config.operand().is_wide()) return 1;
  return config.tokens <= 64 ? 1.4 : config.tokens <= 128 ? 1.28 : 1.03;
}

}  // namespace

Sm90Pace Sm90PaceOf(const Sm90Config& config) {
  Sm90Pace pace = (config.is_slabwise() ? SlabRow(config) : ChunkRow(config)).For(config.tokens);
  pace.slab *= DecodingFactor(config);
  // One unit of 64 rows, its warpgroups on columns of their own: more of them load x, and fewer share it.
  if (config.row_groups == 1) {
    pace.slab *= config.operand().is_wide() ? 1.09 : config.tokens < 128 ? 1.2 : 1.86;
  }
  return pace;
}

}  // namespace gemmd
