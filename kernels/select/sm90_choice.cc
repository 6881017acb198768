#include "kernels/select/sm90_choice.h"

#include <algorithm>
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
  const int partial_sums = config.sums_in_unit() ? 0 : in_parts ? 64 : config.tokens / 2;
  const bool from_shared = is_direct && config.is_slabwise();
  const int operands = from_shared ? 0 : (in_parts ? 1 : 2) * PackedLayout::kRegisters;
  const int codes = is_direct ? 0 : layout.slabs * layout.WordsOfThread(layout.code_bits);
  const bool is_fused = config.scale_on_weights &&
                        config.operand().can_fuse(layout.has_zero_points, layout.sets());
  const int scale_copies = is_fused ? 3 : config.scale_on_weights ? 1 : 2;
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
  if (config.is_slabwise() && !config.sums_in_unit()) {
    // One sum a slab: with two, ptxas 13.0 was seen to lose the first parts of tiles of 256 tokens. Decoded
    // weights are multiplied with two parts of 64 tokens at a time.
    const bool one_sum =
        config.scale_on_weights || config.scale_step >= config.layout().slab_columns();
    if (!one_sum || (config.tokens < 128 && !config.layout().is_direct())) return false;
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

// Parts of K that a cluster may add up. Sums, partial sums and scales of x of 256 tokens leave no registers for
// the exchange's addresses.
int MostParts(const Sm90Config& config) {
  const bool is_full = config.is_slabwise() && config.tokens == 256 && config.has_x_scales &&
                       !config.layout().is_direct();
  return is_full ? 1 : kLargestCluster / config.sharers;
}

// A candidate for M rows of x: how its tiles fall on the multiprocessors.
struct Spread {
  int parts;            // of K
  int most_parts;       // that a cluster and K allow
  int64_t tiles;        // of w times x
  int64_t waves;        // of clusters that run at once
  int64_t block_slabs;  // that one warpgroup works on for a tile

  // `parts` 0: the best.
  static Spread Of(const Sm90Config& config, const LayerShape& shape, int64_t m, int parts = 0) {
    const int64_t slabs = Tiles(shape.k, config.unit().slab_columns());
    const int64_t stages = Tiles(slabs, config.stage_slabs * config.column_groups);
    const int64_t row_tiles = Tiles(m, config.tokens);
    const int64_t w_tiles = Tiles(PackedLayout::Units(shape.n), config.row_groups);
    const int64_t clusters = Tiles(w_tiles, config.sharers) * row_tiles;
    Spread spread;
    spread.most_parts = static_cast<int>(std::min<int64_t>(MostParts(config), stages));
    spread.parts = parts != 0 ? parts : BestParts(clusters, config.sharers, spread.most_parts);
    spread.tiles = w_tiles * row_tiles;
    spread.waves = Tiles(clusters, kActiveClusters[spread.parts * config.sharers - 1]);
    spread.block_slabs = Tiles(slabs, config.column_groups * spread.parts);
    return spread;
  }

  // The most parts of K with which `clusters` clusters of `sharers` blocks for each part run at once.
  static int BestParts(int64_t clusters, int sharers, int most_parts) {
    int best = 1;
    for (int parts = 2; parts <= most_parts; ++parts) {
      if (clusters <= kActiveClusters[parts * sharers - 1]) best = parts;
    }
    return best;
  }
};

// Few rows of x: reading the weights takes the time, so that most blocks should be busy. Where two tiles keep
// as many busy, small ones without an exchange between blocks were measured to be 3 to 17 percent faster, but
// for decoded weights and more than 8 rows of x, which every tile copies.
double IdleShare(const Sm90Config& config, const Spread& spread) {
  constexpr double kExchange = 0.02;  // of a part of K
  const bool exchange_counts = config.tokens <= 8 || config.layout().is_direct();
  return static_cast<double>(spread.waves) / static_cast<double>(spread.tiles * spread.parts) *
         (exchange_counts ? 1 + kExchange * (spread.parts - 1) : 1);
}

// Many rows of x: what the waves of tiles take.
double Cycles(const Sm90Config& config, const Spread& spread) {
  const Sm90Pace pace = Sm90PaceOf(config);
  return static_cast<double>(spread.waves) *
         (static_cast<double>(spread.block_slabs) * pace.slab + pace.tile +
          (spread.parts > 1 ? pace.exchange : 0.0));
}

int ResidentClusters(const Sm90Config& config, int parts) {
  return config.is_slabwise() && parts == 1 ? static_cast<int>(kActiveClusters[config.sharers - 1])
                                            : 0;
}

// With K in `parts`, for up to `m` rows of x.
Sm90Choice WithParts(Sm90Config config, int64_t m, int parts) {
  config.splits_k = config.is_slabwise() && parts > 1;
  Sm90Choice choice;
  choice.largest_m = m;
  choice.config = config;
  choice.cluster = config.sharers * parts;
  choice.resident = ResidentClusters(config, parts);
  return choice;
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
    best = WithParts(config, m, spread.parts);
    best.model_cycles = price;
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
  Sm90Choice choice;
  // Too many registers: fewer warpgroups, then fewer rows of x.
  for (int tile = tokens; choice.cluster == 0; tile /= 2) {
    for (const bool four_groups : {true, false}) {
      if (choice.cluster != 0 || (four_groups && is_direct)) continue;
      choice = Choose(config, shape, tokens, FewRows(tile, four_groups), IdleShare);
    }
  }
  choice.model_cycles = 0;
  return choice;
}

Sm90Choice ChooseForManyRows(const Sm90Config& config, const LayerShape& shape, int64_t m) {
  Sm90Choice choice = Choose(config, shape, m, ManyRows(m), Cycles);
  if (choice.cluster != 0) return choice;
  choice = ChooseForFewRows(config, shape, 32);
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

// What tuning tries beside the choice, family by family: a tile in all its parts of K.
struct Family {
  Candidate candidate;
  bool reads_weights;  // for few rows of x: its price is IdleShare, else Cycles
};

std::vector<Family> FamiliesAt(const Sm90Config& config, int64_t m) {
  constexpr int64_t kMostFewRows = 32;
  const bool is_direct = config.layout().is_direct();
  std::vector<Family> families;
  for (const int tile : {8, 16, 32}) {
    if (m > kMostFewRows || m > 2 * tile || (tile > 8 && m <= tile / 2)) continue;
    for (const bool four_groups : {true, false}) {
      if (four_groups && is_direct) continue;
      for (Candidate candidate : FewRows(tile, four_groups)) {
        for (const int bytes : {64 * kKiB, 96 * kKiB}) {
          candidate.weight_bytes = bytes;
          families.push_back({candidate, true});
        }
      }
    }
  }
  if (m <= kMostFewRows / 2) return families;
  for (const Candidate& candidate : ManyRows(m)) families.push_back({candidate, false});
  return families;
}

struct Priced {
  Sm90Choice candidate;
  bool reads_weights;
  int rank;  // in its family
  double price;
};

std::vector<Priced> PriceFamily(const Family& family, const Sm90Config& start,
                                const LayerShape& shape, int64_t m) {
  std::vector<Priced> priced;
  Sm90Config config = WithCandidate(start, family.candidate);
  if (!Fits(config)) return priced;
  config.stages = FitStages(config, family.candidate.weight_bytes);
  for (int parts = 1; parts <= Spread::Of(config, shape, m).most_parts; ++parts) {
    const Spread spread = Spread::Of(config, shape, m, parts);
    Sm90Choice candidate = WithParts(config, m, parts);
    if (!family.reads_weights) candidate.model_cycles = Cycles(config, spread);
    priced.push_back({candidate, family.reads_weights, 0,
                      family.reads_weights ? IdleShare(config, spread) : candidate.model_cycles});
  }
  std::stable_sort(priced.begin(), priced.end(),
                   [](const Priced& a, const Priced& b) { return a.price < b.price; });
  for (size_t i = 0; i < priced.size(); ++i) priced[i].rank = static_cast<int>(i);
  return priced;
}

// IdleShare ranks coarsely, so every family's best comes before any second best; Cycles decide alone.
bool ComesBefore(const Priced& a, const Priced& b) {
  if (a.reads_weights != b.reads_weights) return a.reads_weights;
  if (a.reads_weights && a.rank != b.rank) return a.rank < b.rank;
  return a.price < b.price;
}

}  // namespace

std::vector<Sm90Choice> Sm90CandidatesAt(const QuantSpec& spec, const LayerShape& shape,
                                         ElementType x_type, int64_t m) {
  const Sm90Config start = StartConfig(spec, shape, x_type);
  std::vector<Priced> priced;
  for (const Family& family : FamiliesAt(start, m)) {
    for (Priced& one : PriceFamily(family, start, shape, m)) priced.push_back(std::move(one));
  }
  std::stable_sort(priced.begin(), priced.end(), &ComesBefore);

  std::vector<Sm90Choice> candidates;
  for (const Sm90Choice& choice : ChooseSm90(spec, shape, x_type)) {
    if (candidates.empty() && m <= choice.largest_m) candidates.push_back(choice);
  }
  if (candidates.empty()) return candidates;  // more rows than a grid can count
  candidates.front().largest_m = m;
  candidates.front().model_cycles = 0;  // it was for another M
  for (const Priced& one : priced) {
    const auto same = std::find_if(candidates.begin(), candidates.end(), [&](const auto& other) {
      return TilingOf(other) == TilingOf(one.candidate);
    });
    if (same == candidates.end()) {
      candidates.push_back(one.candidate);
    } else {
      same->model_cycles = one.candidate.model_cycles;
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
