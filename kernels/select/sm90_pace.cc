#include "kernels/select/sm90_pace.h"

namespace gemmd {
namespace {

constexpr int kMostFewTokens = 32;

// Of tiles of 8, 16 and 32 tokens, or of 64, 128 and 256.
struct Row {
  Sm90Pace by_tokens[3];

  Sm90Pace For(int tokens) const {
    const bool is_few = tokens <= kMostFewTokens;
    const int first = is_few ? 8 : 64;
    return by_tokens[tokens <= first ? 0 : tokens <= 2 * first ? 1 : 2];
  }
};

// device/gemm_sm90.cuh, tiles of few tokens, by what x is: with two math warpgroups, and with four.
struct FewRow {
  Row two;
  Row four;
};
constexpr FewRow kFewWide = {{{{178, 4950, 1700}, {188, 5450, 2050}, {214, 6100, 2000}}},
                             {{{300, 5700, 1850}, {322, 6200, 2850}, {352, 7050, 3300}}}};
constexpr FewRow kFewNarrow = {{{{298, 5400, 1600}, {310, 5900, 1600}, {339, 6700, 1450}}},
                               {{{552, 6650, 1750}, {584, 7100, 2350}, {649, 7600, 2500}}}};
constexpr FewRow kFewNarrowWithXScales = {{{{320, 5300, 1550}, {346, 5650, 2200}, {416, 6350, 2100}}},
                                          {{{577, 5950, 1850}, {635, 6500, 2850}, {755, 7300, 2950}}}};
constexpr FewRow kFewInt8 = {{{{233, 5600, 1600}, {300, 4750, 2200}, {327, 6400, 1400}}},
                             {{{445, 6800, 1200}, {546, 6800, 2100}, {612, 7500, 2200}}}};
constexpr FewRow kFewInt8WithXScales = {{{{281, 5100, 1350}, {327, 5450, 1850}, {369, 6300, 2350}}},
                                        {{{498, 5850, 1550}, {543, 6550, 2600}, {720, 6750, 3000}}}};
constexpr Row kFewDirect = {{{310, 5000, 1850}, {341, 5400, 1800}, {337, 6650, 1350}}};
constexpr Row kFewDirectWithXScales = {{{382, 5100, 2050}, {398, 5700, 2200}, {418, 7050, 1750}}};

// device/gemm_sm90_slab.cuh. Where a tile does not exist, its pace is that of 128 tokens.
constexpr Row kSlabInUnit = {{{350, 4100, 3100}, {489, 3950, 4750}, {930, 6850, 6600}}};
constexpr Row kSlabInParts = {{{628, 5100, 5950}, {628, 5100, 5950}, {1217, 7250, 10050}}};
constexpr Row kSlabInInt8Parts = {{{689, 6700, 4800}, {689, 6700, 4800}, {1301, 8050, 9200}}};
constexpr Row kSlabWithXScales = {{{1046, 6300, 3300}, {1046, 6300, 3300}, {1046, 6300, 3300}}};
constexpr Row kSharedInUnit = {{{231, 7350, 1450}, {410, 6350, 5000}, {811, 8650, 7850}}};
constexpr Row kSharedInParts = {{{296, 4050, 4000}, {460, 4100, 7100}, {945, 6350, 10250}}};
constexpr Row kSharedWithXScales = {{{347, 5000, 4300}, {602, 3350, 6150}, {1186, 5400, 11800}}};

// device/gemm_sm90.cuh, tiles of 64 and 128 tokens: with two units of rows, and with one, whose warpgroups have
// columns of their own. Where no such tile of 128 exists, its pace is that of 64.
struct ChunkRow {
  Row two;
  Row one;
};
constexpr ChunkRow kChunkInUnit = {{{{292, 6650, 1200}, {466, 8100, 900}}},
                                   {{{234, 5400, 4100}, {398, 6550, 2900}}}};
constexpr ChunkRow kChunkInParts = {{{{462, 7550, 0}, {639, 11150, 0}}},
                                    {{{411, 6350, 2400}, {411, 6350, 2400}}}};
constexpr ChunkRow kChunkInInt8Parts = {{{{522, 5550, 1100}, {941, 5950, 3000}}},
                                        {{{411, 6300, 2800}, {411, 6300, 2800}}}};
constexpr ChunkRow kChunkWithXScales = {{{{647, 5550, 1350}, {1069, 6400, 3050}}},
                                        {{{545, 6550, 2700}, {545, 6550, 2700}}}};
constexpr ChunkRow kChunkDirectInUnit = {{{{396, 5950, 1800}, {540, 7300, 2100}}},
                                         {{{376, 6500, 3050}, {845, 6400, 3250}}}};
constexpr ChunkRow kChunkDirectInParts = {{{{403, 6350, 1450}, {576, 9300, 750}}},
                                          {{{372, 6350, 3100}, {372, 6350, 3100}}}};
constexpr ChunkRow kChunkDirectWithXScales = {{{{544, 6600, 2300}, {910, 8200, 2700}}},
                                              {{{507, 7050, 3950}, {507, 7050, 3950}}}};

bool IsFew(const Sm90Config& config) { return config.tokens <= kMostFewTokens; }

const Row& FewRowOf(const Sm90Config& config) {
  if (config.layout().is_direct()) return config.has_x_scales ? kFewDirectWithXScales : kFewDirect;
  const bool is_int8 = config.operand().is_int8();
  const FewRow& row = config.operand().is_wide() ? kFewWide
                      : config.has_x_scales      ? is_int8 ? kFewInt8WithXScales : kFewNarrowWithXScales
                      : is_int8                  ? kFewInt8
                                                 : kFewNarrow;
  return config.block().math_groups() == 2 ? row.two : row.four;
}

const Row& SlabRowOf(const Sm90Config& config) {
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

const ChunkRow& ChunkRowsOf(const Sm90Config& config) {
  const bool in_unit = config.sums_in_unit();
  if (config.layout().is_direct()) {
    return in_unit               ? kChunkDirectInUnit
           : config.has_x_scales ? kChunkDirectWithXScales
                                 : kChunkDirectInParts;
  }
  if (in_unit) return kChunkInUnit;
  if (config.has_x_scales) return kChunkWithXScales;
  return config.operand().is_int8() ? kChunkInInt8Parts : kChunkInParts;
}

const Row& RowOf(const Sm90Config& config) {
  if (IsFew(config)) return FewRowOf(config);
  if (config.is_slabwise()) return SlabRowOf(config);
  const ChunkRow& rows = ChunkRowsOf(config);
  return config.row_groups == 1 ? rows.one : rows.two;
}

// Codes that are cut into several planes.
bool HasPlanes(const Sm90Config& config) {
  const int bits = config.weight.bits;
  return (bits & (bits - 1)) != 0 && !config.layout().has_whole_threes();
}

// Weights decoded in float32; of the instructions, not measured.
constexpr double kFewLines = 2.2;

double FewDecodingFactor(const Sm90Config& config) {
  const bool is_wide = config.operand().is_wide();
  if (config.zero_point == ZeroPointKind::kFloat) return kFewLines;
  if (HasPlanes(config)) return is_wide ? 1.88 : 1.17;
  if (!is_wide) return 1;
  if (config.weight.bits == 8) return config.weight.kind == NumberKind::kInteger ? 1.19 : 1.43;
  if (config.layout().has_zero_points()) return 1.51;
  if (config.weight.kind != NumberKind::kInteger) return 1.31;
  return config.weight.bits < 4 ? 1.18 : 1;
}

// A tile of many tokens hides decoding.
double DecodingFactor(const Sm90Config& config) {
  if (config.layout().is_direct()) return 1;
  if (IsFew(config)) return FewDecodingFactor(config);
  const bool is_wide = config.operand().is_wide();
  const bool is_slabwise = config.is_slabwise();
  if (config.tokens > 128) return 1;
  if (config.zero_point == ZeroPointKind::kFloat) return config.tokens <= 64 ? 1.8 : 1.3;
  if (HasPlanes(config)) {
    if (!is_wide) return is_slabwise ? 1.05 : 1.27;
    return config.tokens <= 64 ? 1.4 : 1.2;
  }
  if (is_wide && config.layout().has_zero_points()) return 1.08;
  const bool is_int8 = config.weight.bits == 8 && config.weight.kind == NumberKind::kInteger;
  return is_wide && is_int8 && !is_slabwise && config.tokens <= 64 ? 1.24 : 1;
}

}  // namespace

Sm90Pace Sm90PaceOf(const Sm90Config& config) {
  constexpr double kSharing = 1.13;  // blocks wait for each other, and L2 has less to do
  Sm90Pace pace = RowOf(config).For(config.tokens);
  pace.slab *= DecodingFactor(config);
  if (config.sharers > 1) pace.slab *= kSharing;
  return pace;
}

Sm90Memory Sm90MemoryFor(const Sm90Config& config) {
  if (IsFew(config)) {
    return {.start = 4600, .bytes_per_cycle = 2000, .tile_bytes_per_cycle = 0, .power = 2, .part = 75};
  }
  return {.start = 5700, .bytes_per_cycle = 1900, .tile_bytes_per_cycle = 14100, .power = 3, .part = 1400};
}

}  // namespace gemmd
