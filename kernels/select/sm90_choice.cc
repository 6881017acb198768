#include "kernels/select/sm90_choice.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/select/sm90_candidates.h"
#include "kernels/select/sm90_pace.h"

namespace gemmd {
namespace {

constexpr int64_t kLargestGridY = 65535;
constexpr int kKiB = 1024;

// Clusters of 1 to 8 blocks that run at once with one block on a multiprocessor: an H200 (132
// multiprocessors), read with cuOccupancyMaxActiveClusters on 2026-11-29. Clusters stay inside a GPC.
constexpr int64_t kActiveClusters[] = {132, 66, 39, 30, 22, 17, 15, 15};
constexpr int kLargestCluster = 8;

int64_t Tiles(int64_t extent, int64_t tile) { return (extent + tile - 1) / tile; }

// What a block looks like, before stages are counted.
struct Candidate {
  int tokens;
  int stage_slabs;
  int row_groups;
  int column_groups;
  int sharers;
  int weight_bytes;  // in flight
  int weight_sharers = 1;
};

// Weights times their scales, rounded once to x's type: as exact as a dequantized weight of that type. Weights that
// are operands as they are go by no register that could be multiplied.
bool MayRoundWeights(const Sm90Config& config) {
  if (config.layout().is_direct()) return false;
  return (config.x_type == ElementType::kBFloat16 && config.group_scale == kBFloat16) ||
         (config.x_type == ElementType::kFloat16 && config.group_scale == kFloat16);
}

// Whether the rows of every tile of device/gemm_sm90_slab.cuh share their scales.
bool RowsShareScales(const QuantSpec& spec) {
  return spec.scale_block_n % (2 * PackedLayout::kUnitRows) == 0;
}

Sm90Config WithCandidate(Sm90Config config, const Candidate& candidate) {
  config.tokens = candidate.tokens;
  config.stage_slabs = candidate.stage_slabs;
  config.row_groups = candidate.row_groups;
  config.column_groups = candidate.column_groups;
  config.sharers = candidate.sharers;
  config.weight_sharers = candidate.weight_sharers;
  // A multiplication per weight pays where it spares one per sum.
  if (config.tokens >= 64 && MayRoundWeights(config)) config.scale_on_weights = true;
  if (!config.is_slabwise() || !config.layout().is_direct()) config.shares_scales = false;
  return config;
}

// Registers of a math thread, by what it holds; the compiler was seen to need no more.
int RegistersNeeded(const Sm90Config& config) {
  const PackedLayout layout = config.unit();
  const bool is_direct = layout.is_direct();
  const bool in_parts = config.is_slabwise() && !config.sums_in_unit();
  const int sums = config.tokens / 2;
  // Two sets of partial sums of the tile, and half a slab decoded at a time.
  const bool alternates = in_parts && !is_direct && config.tokens == 128;
  const int partial_sums = config.sums_in_unit() ? 0
                           : alternates          ? config.tokens
                           : in_parts            ? 64
                                                 : config.tokens / 2;
  const bool from_shared = is_direct && config.is_slabwise();
  const int operands = from_shared ? 0 : (in_parts ? 1 : 2) * PackedLayout::kRegisters;
  const int codes = is_direct ? 0 : layout.slabs * layout.WordsOfThread(layout.code_bits) / (alternates ? 2 : 1);
  const bool is_fused = config.scale_on_weights &&
                        config.operand().can_fuse(layout.has_zero_points(), layout.sets());
  const int scale_copies = is_fused ? 3 : config.scale_on_weights ? 1 : 2;
  const int sets = alternates ? (layout.sets() + 1) / 2 : layout.sets();
  const int scales = config.group_scale.present() ? sets * 2 * scale_copies : 0;
  const int offsets = layout.has_zero_points() ? layout.sets() * 2 : 0;
  // Integers less their zero points on the way to operands; sums of 32 columns on the way to floats.
  const bool has_conversions = layout.has_zero_points() || layout.sets() >= 8;
  const int conversions =
      config.operand().is_int8() && has_conversions && !config.is_slabwise() ? 24 : 0;
  const int places_and_counters = config.is_slabwise() ? 16 : 24;
  return sums + partial_sums + operands + codes + scales + offsets + conversions +
         places_and_counters;
}

bool Fits(const Sm90Config& config) {
  if (config.is_slabwise() && !config.sums_in_unit()) {
    // One sum a slab: with two, ptxas 13.0 was seen to lose the first parts of tiles of 256 tokens. Decoded
    // weights are multiplied with two parts of 64 tokens at a time.
    const bool one_sum =
        config.scale_on_weights || config.scale_step >= config.layout().slab_columns();
    if (!one_sum || (config.tokens < 128 && !config.layout().is_direct())) return false;
    // Sums, partial sums, operands and scales of x of 256 tokens: the compiler spills.
    if (config.tokens == 256 && config.has_x_scales && !config.layout().is_direct()) return false;
  }
  // Sums of int8 that are promoted more than once a slab, of decoded operands or with scales of x: the compiler
  // spills.
  const bool splits_slabs = config.scale_step < config.layout().slab_columns();
  const bool needs_more = !config.layout().is_direct() || config.has_x_scales;
  if (config.tokens == 128 && config.operand().is_int8() && needs_more && splits_slabs) return false;
  // Column groups of tiles of 128 tokens pay where nothing is promoted.
  if (config.row_groups == 1 && config.tokens == 128 && !config.sums_in_unit()) return false;
  return RegistersNeeded(config) <= config.block().math_registers();
}

// Stages for `wanted_bytes` of weights in flight, and as shared memory allows.
int FitStages(Sm90Config config, int wanted_bytes) {
  constexpr int kMostStages = 8;
  const int stage = config.block().weight_bytes();
  config.stages = std::clamp((wanted_bytes + stage - 1) / stage, 3, kMostStages);
  if (config.is_slabwise()) config.stages = kMostStages;
  while (config.stages > 2 && config.block().shared_bytes() > Sm90Block::kLargestSharedBytes) {
    --config.stages;
  }
  return config.stages;
}

// Parts of K that a cluster may add up, none of them empty.
int MostParts(const Sm90Config& config, const LayerShape& shape) {
  const int64_t stage_columns =
      int64_t{config.unit().slab_columns()} * config.stage_slabs * config.column_groups;
  return static_cast<int>(
      std::min<int64_t>(kLargestCluster / config.partners(), Tiles(shape.k, stage_columns)));
}

// How a candidate's tiles for M rows of x fall on the multiprocessors, with K in `parts`.
struct Spread {
  int parts;
  int64_t tiles;        // of w times x
  int64_t waves;        // of clusters that run at once
  int64_t block_slabs;  // that one warpgroup works on for a tile

  static Spread Of(const Sm90Config& config, const LayerShape& shape, int64_t m, int parts) {
    const int64_t row_tiles = Tiles(m, config.tokens);
    const int64_t w_tiles = Tiles(PackedLayout::Units(shape.n), config.row_groups);
    const int64_t clusters = Tiles(w_tiles, config.sharers) * Tiles(row_tiles, config.weight_sharers);
    return {parts, w_tiles * row_tiles, Tiles(clusters, kActiveClusters[parts * config.partners() - 1]),
            Tiles(Tiles(shape.k, config.unit().slab_columns()), config.column_groups * parts)};
  }
};

// What all tiles read of weights and x.
double TileBytes(const Sm90Config& config, const LayerShape& shape, const Spread& spread) {
  const double weights = static_cast<double>(config.layout().Bytes(
      int64_t{config.row_groups} * PackedLayout::kUnitRows, shape.k));
  const double x = static_cast<double>(shape.k) * config.tokens * config.operand().bits() / 8;
  return static_cast<double>(spread.tiles) * (weights / config.weight_sharers + x / config.sharers);
}

// Weights, x and y, each once.
double LeastBytes(const Sm90Config& config, const LayerShape& shape, int64_t m) {
  constexpr double kYBytes = 2;
  const double x_bytes = config.operand().bits() / 8.0;
  return static_cast<double>(config.layout().Bytes(shape.n, shape.k)) +
         static_cast<double>(m) * (static_cast<double>(shape.k) * x_bytes +
                                   static_cast<double>(shape.n) * kYBytes);
}

// What `m` rows of x take.
double Cycles(const Sm90Config& config, const LayerShape& shape, int64_t m, const Spread& spread) {
  const Sm90Pace pace = Sm90PaceOf(config);
  const Sm90Memory memory = Sm90MemoryFor(config);
  double tile = static_cast<double>(spread.block_slabs) * pace.slab + pace.tile;
  if (spread.parts > 1) tile += pace.exchange + memory.part * (spread.parts - 2);
  double work = static_cast<double>(spread.waves) * tile;
  if (memory.tile_bytes_per_cycle > 0) {
    work += TileBytes(config, shape, spread) / memory.tile_bytes_per_cycle;
  }
  const double least = LeastBytes(config, shape, m) / memory.bytes_per_cycle;
  return memory.start +
         std::pow(std::pow(work, memory.power) + std::pow(least, memory.power), 1 / memory.power);
}

int ResidentClusters(const Sm90Config& config, int parts) {
  return config.is_slabwise() && parts == 1 ? static_cast<int>(kActiveClusters[config.partners() - 1])
                                            : 0;
}

// With K in `parts`, for up to `m` rows of x.
Sm90Choice WithParts(Sm90Config config, int64_t m, int parts) {
  config.splits_k = config.is_slabwise() && parts > 1;
  Sm90Choice choice;
  choice.largest_m = m;
  choice.config = config;
  choice.cluster = config.partners() * parts;
  choice.resident = ResidentClusters(config, parts);
  return choice;
}

void AddInAllParts(const Sm90Config& start, const Candidate& tile, const LayerShape& shape, int64_t m,
                   std::vector<Sm90Choice>& choices) {
  Sm90Config config = WithCandidate(start, tile);
  if (!Fits(config)) return;
  config.stages = FitStages(config, tile.weight_bytes);
  for (int parts = 1; parts <= MostParts(config, shape); ++parts) {
    choices.push_back(WithParts(config, m, parts));
    choices.back().model_cycles = Cycles(config, shape, m, Spread::Of(config, shape, m, parts));
  }
}

// For up to `m` rows of x, the fastest first.
std::vector<Sm90Choice> Ranked(const Sm90Config& start, const LayerShape& shape, int64_t m,
                               const std::vector<Candidate>& tiles) {
  std::vector<Sm90Choice> choices;
  for (const Candidate& tile : tiles) AddInAllParts(start, tile, shape, m, choices);
  std::stable_sort(choices.begin(), choices.end(), [](const Sm90Choice& a, const Sm90Choice& b) {
    return a.model_cycles < b.model_cycles;
  });
  return choices;
}

// Two math warpgroups, or four where there is something to decode: operands that need none keep two busy enough,
// and their chunks are large.
std::vector<Candidate> FewRows(int tokens, bool is_direct) {
  const int bytes = tokens <= 16 ? 64 * kKiB : 96 * kKiB;
  std::vector<Candidate> candidates = {{tokens, 2, 2, 1, 1, bytes}, {tokens, 2, 1, 2, 1, bytes}};
  if (is_direct) return candidates;
  for (const int row_groups : {4, 2, 1}) {
    candidates.push_back({tokens, 2, row_groups, 4 / row_groups, 1, bytes});
  }
  return candidates;
}

std::vector<Candidate> ManyRows(int64_t m) {
  std::vector<Candidate> candidates;
  for (const int sharers : {2, 1}) {
    if (m > 128) candidates.push_back({256, 1, 2, 1, sharers, 0});
    if (m > 64) candidates.push_back({128, 1, 2, 1, sharers, 0});
    candidates.push_back({64, 1, 2, 1, sharers, 0});
    if (m > 64) candidates.push_back({128, 2, 2, 1, sharers, 32 * kKiB});
    candidates.push_back({64, 2, 2, 1, sharers, 48 * kKiB});
  }
  if (m > 256) candidates.push_back({256, 1, 2, 1, 1, 0, /*weight_sharers=*/2});
  if (m > 128) candidates.push_back({128, 1, 2, 1, 1, 0, /*weight_sharers=*/2});
  if (m > 64) candidates.push_back({128, 2, 1, 2, 1, 32 * kKiB});
  candidates.push_back({64, 2, 1, 2, 1, 48 * kKiB});
  return candidates;
}

// The same kernel in the same clusters.
bool IsLaunchedAs(const Sm90Choice& a, const Sm90Choice& b) {
  return a.cluster == b.cluster && a.resident == b.resident &&
         RenderProgram(a.config) == RenderProgram(b.config);
}

Sm90Choice ChooseForFewRows(const Sm90Config& config, const LayerShape& shape, int tokens) {
  const bool is_direct = config.layout().is_direct();
  std::vector<Sm90Choice> choices;
  for (int tile = tokens; choices.empty(); tile /= 2) {  // else too many registers
    choices = Ranked(config, shape, tokens, FewRows(tile, is_direct));
  }
  return choices.front();
}

Sm90Choice ChooseForManyRows(const Sm90Config& config, const LayerShape& shape, int64_t m) {
  const std::vector<Sm90Choice> choices = Ranked(config, shape, m, ManyRows(m));
  if (!choices.empty()) return choices.front();
  Sm90Choice choice = ChooseForFewRows(config, shape, 32);
  choice.largest_m = m;
  return choice;
}

Sm90Config StartConfig(const QuantSpec& spec, const LayerShape& shape, ElementType x_type) {
  const Sm90Packing packing = Sm90PackingOf(spec, shape);
  Sm90Config config;
  config.weight = spec.weight;
  config.group_scale = packing.group_scale;
  config.zero_point = spec.zero_point;
  config.x_type = x_type;
  config.scale_step = packing.layout.scale_step;
  config.scale_on_weights = Sm90ScalesWeights(spec, packing, x_type);
  config.scale_is_relative = packing.is_relative;
  config.has_x_scales = Sm90TakesXScales(spec, shape);
  config.shares_scales = config.has_x_scales && config.group_scale.present() &&
                         !config.scale_on_weights && RowsShareScales(spec) &&
                         config.scale_step >= packing.layout.slab_columns();
  return config;
}

// What tuning tries beside the choice.
std::vector<Candidate> TilesAt(const Sm90Config& config, int64_t m) {
  constexpr int64_t kMostFewRows = 32;
  std::vector<Candidate> tiles;
  for (const int tile : {8, 16, 32}) {
    if (m > kMostFewRows || m > 2 * tile || (tile > 8 && m <= tile / 2)) continue;
    for (Candidate candidate : FewRows(tile, config.layout().is_direct())) {
      for (const int bytes : {64 * kKiB, 96 * kKiB}) {
        candidate.weight_bytes = bytes;
        tiles.push_back(candidate);
      }
    }
  }
  if (m <= kMostFewRows / 2) return tiles;
  for (const Candidate& candidate : ManyRows(m)) tiles.push_back(candidate);
  return tiles;
}

}  // namespace

std::vector<Sm90Choice> Sm90CandidatesAt(const QuantSpec& spec, const LayerShape& shape,
                                         ElementType x_type, int64_t m) {
  const Sm90Config start = StartConfig(spec, shape, x_type);
  std::vector<Sm90Choice> candidates;
  for (const Sm90Choice& choice : ChooseSm90(spec, shape, x_type)) {
    if (candidates.empty() && m <= choice.largest_m) candidates.push_back(choice);
  }
  if (candidates.empty()) return candidates;  // more rows than a grid can count
  candidates.front().largest_m = m;
  candidates.front().model_cycles = 0;  // it was for another M
  for (const Sm90Choice& one : Ranked(start, shape, m, TilesAt(start, m))) {
    const auto same = std::find_if(candidates.begin(), candidates.end(), [&](const auto& other) {
      return TilingOf(other) == TilingOf(one);
    });
    if (same == candidates.end()) {
      candidates.push_back(one);
    } else {
      same->model_cycles = one.model_cycles;
    }
  }
  return candidates;
}

int64_t LargestSm90M(const Sm90Choice& choice) { return kLargestGridY * choice.config.tokens; }

std::vector<Sm90Choice> ChooseSm90(const QuantSpec& spec, const LayerShape& shape,
                                   ElementType x_type) {
  const Sm90Config config = StartConfig(spec, shape, x_type);
  std::vector<Sm90Choice> choices;
  for (const int tokens : {8, 16, 32}) choices.push_back(ChooseForFewRows(config, shape, tokens));
  for (const int64_t m : {64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096}) {
    const Sm90Choice choice = ChooseForManyRows(config, shape, m);
    if (IsLaunchedAs(choice, choices.back())) choices.pop_back();
    choices.push_back(choice);
  }
  choices.back().largest_m = LargestSm90M(choices.back());
  return choices;
}

}  // namespace gemmd
