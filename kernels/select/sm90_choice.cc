#include "kernels/select/sm90_choice.h"

#include <algorithm>

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
};

// Weights times their scales, rounded once to x's type: as exact as a dequantized weight of that type.
bool MayRoundWeights(const Sm90Config& config) {
  return (config.x_type == ElementType::kBFloat16 && config.group_scale == kBFloat16) ||
         (config.x_type == ElementType::kFloat16 && config.group_scale == kFloat16);
}

// Whether the rows of every tile of device/gemm_sm90_slab.cuh share their scales.
bool RowsShareScales(const QuantSpec& spec) {
  return spec.scale_block_n % (2 * PackedLayout::kUnitRows) == 0;
}

// Whether the matrix unit sums over all of K, as device/matrix_step_sm90.cuh does it.
bool SumsInUnit(const Sm90Config& config) {
  if (config.operand().is_int8()) return !config.group_scale.present() && !config.has_x_scales;
  return config.operand().is_wide() && (config.scale_on_weights || !config.group_scale.present());
}

Sm90Config WithCandidate(Sm90Config config, const Candidate& candidate) {
  config.tokens = candidate.tokens;
  config.stage_slabs = candidate.stage_slabs;
  config.row_groups = candidate.row_groups;
  config.column_groups = candidate.column_groups;
  config.sharers = candidate.sharers;
  // A multiplication per weight pays where it spares one per sum.
  if (config.tokens >= 64 && MayRoundWeights(config)) config.scale_on_weights = true;
  if (!config.is_slabwise()) config.shares_scales = false;
  return config;
}

// Registers of a math thread, by what it holds; the compiler was seen to need no more.
int RegistersNeeded(const Sm90Config& config) {
  const PackedLayout layout = config.unit();
  const bool is_direct = layout.operand_bits == 8 && layout.code_bits == 8;
  const bool in_parts = config.is_slabwise() && !SumsInUnit(config);
  const int sums = config.tokens / 2;
  const int partial_sums = SumsInUnit(config) ? 0 : in_parts ? 64 : config.tokens / 2;
  const int operands = (in_parts ? 1 : 2) * PackedLayout::kRegisters;
  const int codes = is_direct ? 0 : layout.slabs * layout.WordsOfThread(layout.code_bits);
  const int scale_copies = config.scale_on_weights ? 1 : 2;
  const int scales = config.group_scale.present() ? layout.sets() * 2 * scale_copies : 0;
  const int offsets = layout.has_zero_points ? layout.sets() * 2 : 0;
  // Integers less their zero points on the way to operands; sums of 32 columns on the way to floats.
  const bool has_conversions = layout.has_zero_points || layout.sets() >= 8;
  const int conversions =
      config.operand().is_int8() && has_conversions && !config.is_slabwise() ? 24 : 0;
  const int places_and_counters = config.is_slabwise() ? 16 : 24;
  return sums + partial_sums + operands + codes + scales + offsets + conversions +
         places_and_counters;
}

bool Fits(const Sm90Config& config) {
  if (config.is_slabwise() && !SumsInUnit(config)) {
    // Parts of 64 tokens, two of them at a time, and one sum a slab: with two, ptxas 13.0 was seen to lose
    // the first parts of tiles of 256 tokens.
    const bool one_sum =
        config.scale_on_weights || config.scale_step >= config.layout().slab_columns();
    if (config.tokens < 128 || !one_sum) return false;
  }
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

// A candidate for M rows of x: how its tiles fall on the multiprocessors.
struct Spread {
  int parts;            // of K
  int64_t tiles;        // of w times x
  int64_t waves;        // of clusters that run at once
  int64_t block_slabs;  // that one warpgroup works on for a tile

  static Spread Of(const Sm90Config& config, const LayerShape& shape, int64_t m) {
    const int64_t slabs = Tiles(shape.k, config.unit().slab_columns());
    const int64_t stages = Tiles(slabs, config.stage_slabs * config.column_groups);
    const int64_t row_tiles = Tiles(m, config.tokens);
    const int64_t w_tiles = Tiles(PackedLayout::Units(shape.n), config.row_groups);
    const int64_t clusters = Tiles(w_tiles, config.sharers) * row_tiles;
    Spread spread;
    spread.parts = BestParts(clusters, config.sharers, stages);
    spread.tiles = w_tiles * row_tiles;
    spread.waves = Tiles(clusters, kActiveClusters[spread.parts * config.sharers - 1]);
    spread.block_slabs = Tiles(slabs, config.column_groups * spread.parts);
    return spread;
  }

  // The most parts of K with which `clusters` clusters of `sharers` blocks for each part run at once.
  static int BestParts(int64_t clusters, int sharers, int64_t stages) {
    int best = 1;
    for (int parts = 2; parts * sharers <= kLargestCluster && parts <= stages; ++parts) {
      if (clusters <= kActiveClusters[parts * sharers - 1]) best = parts;
    }
    return best;
  }
};

// Few rows of x: reading the weights takes the time, so that most blocks should be busy.
double IdleShare(const Spread& spread) {
  return static_cast<double>(spread.waves) / static_cast<double>(spread.tiles * spread.parts);
}

// Cycles for a slab of a tile of 128 rows of w, and for what comes before and after its slabs. Measured on an
// H200 on 2026-11-30, 8192 x 8192 and 7168 x 2048 at M = 1024.
struct Pace {
  double slab;
  double tile;
};
Pace PaceOf(const Sm90Config& config) {
  const bool is_wide = config.operand().is_wide();
  if (!config.is_slabwise()) {
    const bool is_small = config.tokens < 128;
    if (config.has_x_scales) return is_small ? Pace{812, 8800} : Pace{1195, 11000};
    if (is_wide) return is_small ? Pace{426, 7500} : Pace{647, 10000};
    return is_small ? Pace{571, 9300} : Pace{806, 15000};
  }
  if (SumsInUnit(config)) {
    if (config.tokens == 256) return {1180, 10000};
    return config.tokens == 128 ? Pace{685, 4800} : Pace{500, 3800};
  }
  if (config.has_x_scales) return config.tokens == 256 ? Pace{2450, 10500} : Pace{1150, 5500};
  return config.tokens == 256 ? Pace{1450, 10500} : Pace{900, 5500};
}

// Many rows of x: what the waves of tiles take.
double Cycles(const Sm90Config& config, const Spread& spread) {
  constexpr double kExchange = 8000;  // of the sums of the parts of K
  const Pace pace = PaceOf(config);
  return static_cast<double>(spread.waves) * (static_cast<double>(spread.block_slabs) * pace.slab +
                                              pace.tile + (spread.parts > 1 ? kExchange : 0.0));
}

// The best of `candidates` for up to `m` rows of x; none: cluster 0.
template <typename Cost>
Sm90Choice Choose(const Sm90Config& start, const LayerShape& shape, int64_t m,
                  const std::vector<Candidate>& candidates, Cost cost) {
  Sm90Choice best;
  best.largest_m = m;
  double least = 0;
  for (const Candidate& candidate : candidates) {
    Sm90Config config = WithCandidate(start, candidate);
    if (!Fits(config)) continue;
    const Spread spread = Spread::Of(config, shape, m);
    const double price = cost(config, spread);
    if (best.cluster != 0 && price >= least) continue;
    least = price;
    config.stages = FitStages(config, candidate.weight_bytes);
    best.config = config;
    best.cluster = config.sharers * spread.parts;
    best.resident = config.is_slabwise() && spread.parts == 1
                        ? static_cast<int>(kActiveClusters[config.sharers - 1])
                        : 0;
  }
  return best;
}

// Four math warpgroups, or two: operands that need no decoding keep two busy enough, and their chunks are
// large.
std::vector<Candidate> FewRows(int tokens, bool four_groups) {
  const int bytes = tokens <= 16 ? 64 * kKiB : 96 * kKiB;
  if (!four_groups) return {{tokens, 2, 2, 1, 1, bytes}, {tokens, 2, 1, 2, 1, bytes}};
  return {{tokens, 2, 4, 1, 1, bytes}, {tokens, 2, 2, 2, 1, bytes}, {tokens, 2, 1, 4, 1, bytes}};
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
  return candidates;
}

// The same kernel in the same clusters.
bool IsLaunchedAs(const Sm90Choice& a, const Sm90Choice& b) {
  return a.cluster == b.cluster && a.resident == b.resident &&
         RenderProgram(a.config) == RenderProgram(b.config);
}

Sm90Choice ChooseForFewRows(const Sm90Config& config, const LayerShape& shape, int tokens) {
  const bool is_direct = !config.operand().is_wide() && config.weight.bits == 8;
  const auto cost = [](const Sm90Config&, const Spread& spread) { return IdleShare(spread); };
  Sm90Choice choice;
  // Too many registers: fewer warpgroups, then fewer rows of x.
  for (int tile = tokens; choice.cluster == 0; tile /= 2) {
    for (const bool four_groups : {true, false}) {
      if (choice.cluster != 0 || (four_groups && is_direct)) continue;
      choice = Choose(config, shape, tokens, FewRows(tile, four_groups), cost);
    }
  }
  return choice;
}

Sm90Choice ChooseForManyRows(const Sm90Config& config, const LayerShape& shape, int64_t m) {
  Sm90Choice choice = Choose(config, shape, m, ManyRows(m), Cycles);
  if (choice.cluster != 0) return choice;
  choice = ChooseForFewRows(config, shape, 32);
  choice.largest_m = m;
  return choice;
}

}  // namespace

std::vector<Sm90Choice> ChooseSm90(const QuantSpec& spec, const LayerShape& shape,
                                   ElementType x_type) {
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

  std::vector<Sm90Choice> choices;
  for (const int tokens : {8, 16, 32}) choices.push_back(ChooseForFewRows(config, shape, tokens));
  for (const int64_t m : {64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096}) {
    const Sm90Choice choice = ChooseForManyRows(config, shape, m);
    if (IsLaunchedAs(choice, choices.back())) choices.pop_back();
    choices.push_back(choice);
  }
  choices.back().largest_m = kLargestGridY * choices.back().config.tokens;
  return choices;
}

}  // namespace gemmd
