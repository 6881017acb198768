#include "kernels/select/sm90_config.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/select/gemm_config.h"
#include "kernels/select/render.h"

namespace gemmd {
namespace {

absl::Status NoKernel(absl::string_view reason) {
  return Error(absl::StatusCode::kUnimplemented, "NO_KERNEL",
               absl::StrCat("the SM90 kernel does not take ", reason));
}

// Scales that are the same for a whole row of w multiply the finished sum.
bool HasGroups(const QuantSpec& spec, const LayerShape& shape) {
  return (spec.scale.present() || spec.zero_point != ZeroPointKind::kNone) &&
         spec.scale_block_k != 0 && spec.scale_block_k < shape.k;
}

// float32 stays, 16-bit types stay, 8-bit types are all bfloat16 numbers.
NumberFormat PackedScale(const NumberFormat& scale) { return scale.bits == 8 ? kBFloat16 : scale; }

// Columns that certainly share one scale: the largest of 16, 32, 64, 128 that divides the group.
int ScaleStep(int64_t group) {
  int step = PackedLayout::kChunkColumns;
  while (group % step != 0) step /= 2;
  return step;
}

// Clusters of 1 to 8 blocks that run at once with one block on a multiprocessor: an H200 (132
// multiprocessors), read with cuOccupancyMaxActiveClusters on 2026-11-29. Clusters stay inside a GPC.
constexpr int64_t kActiveClusters[] = {132, 66, 39, 30, 22, 17, 15, 15};
constexpr int kLargestCluster = 8;

struct Shape {
  int row_groups;
  int column_groups;
};

int64_t Tiles(int64_t extent, int64_t tile) { return (extent + tile - 1) / tile; }

// The cluster that keeps most blocks busy at once; the smallest of equals.
int BestCluster(int64_t tiles, int64_t stages) {
  int best = 1;
  for (int cluster = 2; cluster <= std::min<int64_t>(kLargestCluster, stages); ++cluster) {
    const bool fits = tiles <= kActiveClusters[cluster - 1];
    if (fits) best = cluster;
  }
  return best;
}

// Stages that fit into shared memory, at most `wanted`.
int FitStages(Sm90Config config, int wanted) {
  config.stages = wanted;
  while (config.stages > 2 && config.block().shared_bytes() > Sm90Block::kLargestSharedBytes) {
    --config.stages;
  }
  return config.stages;
}

Sm90Choice Choose(Sm90Config config, const LayerShape& shape, int64_t row_tiles,
                  const std::vector<Shape>& candidates, int wanted_stages) {
  Sm90Choice best{};
  int64_t most = 0;
  const int64_t units = PackedLayout::Units(shape.n);
  const int64_t chunks = PackedLayout::Chunks(shape.k);
  for (const auto& [row_groups, column_groups] : candidates) {
    const int64_t tiles = Tiles(units, row_groups) * row_tiles;
    const int cluster = BestCluster(tiles, Tiles(chunks, column_groups));
    // More blocks than run at once come in waves; what counts is how full the last wave is.
    const int64_t at_once = kActiveClusters[cluster - 1];
    const int64_t busy = tiles * cluster / Tiles(tiles, at_once);
    if (busy <= most) continue;
    most = busy;
    config.row_groups = row_groups;
    config.column_groups = column_groups;
    best.config = config;
    best.cluster = cluster;
  }
  best.config.stages = FitStages(best.config, wanted_stages);
  return best;
}

}  // namespace

std::string RenderProgram(const Sm90Config& config) {
  return render::Program("gemm_sm90.cuh", config);
}

std::string KernelNameExpression(const Sm90Config&) {
  return "gemmd::device::GemmSm90<gemmd::device::Config>";
}

std::vector<std::pair<std::string, std::string>> DescribeFields(const Sm90Config& config) {
  return render::Fields(config);
}

std::string KernelName(const Sm90Config& config) {
  const Sm90Block block = config.block();
  const std::string scale =
      config.group_scale.present()
          ? absl::StrCat(NumberFormatName(config.group_scale), "s", config.scale_step)
          : "rows";
  return absl::StrCat("gemm_sm90_", config.x_type == ElementType::kBFloat16 ? "bf16_" : "f16_",
                      NumberFormatName(config.weight),
                      config.zero_point == ZeroPointKind::kInteger ? "z_" : "_", scale, "_",
                      config.tokens, "x", block.rows(), "x",
                      config.column_groups * PackedLayout::kChunkColumns);
}

absl::Status SupportsSm90(const QuantSpec& spec, const LayerShape& shape,
                          const std::string& architecture) {
  if (architecture != "sm_90a") return NoKernel(absl::StrCat("architecture ", architecture));
  if (shape.experts != 1) return NoKernel(absl::StrCat(shape.experts, " experts"));
  if (spec.weight != IntegerFormat(4)) {
    return NoKernel(absl::StrCat(NumberFormatName(spec.weight), " weights"));
  }
  if (spec.zero_point == ZeroPointKind::kFloat) return NoKernel("floating-point zero points");
  if (spec.has_group_index) return NoKernel("a group index");
  if (HasGroups(spec, shape) && spec.scale_block_k % 16 != 0) {
    return NoKernel(
        absl::StrCat("groups of ", spec.scale_block_k, " columns, which are no multiple of 16"));
  }
  return absl::OkStatus();
}

Sm90Packing Sm90PackingOf(const QuantSpec& spec, const LayerShape& shape) {
  Sm90Packing packing;
  const bool has_groups = HasGroups(spec, shape);
  if (has_groups) {
    packing.group_scale = PackedScale(spec.scale);
    packing.layout.scale_step = ScaleStep(spec.scale_block_k);
  }
  packing.layout.scale_bytes = packing.group_scale.bits / 8;
  packing.layout.has_zero_points = spec.zero_point == ZeroPointKind::kInteger;
  return packing;
}

std::vector<Sm90Choice> ChooseSm90(const QuantSpec& spec, const LayerShape& shape,
                                   ElementType x_type) {
  constexpr int64_t kLargestGridY = 65535;
  const std::vector<Shape> four_groups = {{4, 1}, {2, 2}, {1, 4}};
  const std::vector<Shape> two_groups = {{2, 1}, {1, 2}};
  // Fewer rows of w would read x more often, which costs more than idle multiprocessors here.
  const std::vector<Shape> two_row_groups = {{2, 1}};
  const Sm90Packing packing = Sm90PackingOf(spec, shape);
  Sm90Config config;
  config.weight = spec.weight;
  config.group_scale = packing.group_scale;
  config.zero_point = spec.zero_point;
  config.x_type = x_type;
  config.scale_step = packing.layout.scale_step;

  struct Range {
    int64_t largest_m;
    int tokens;
    int64_t row_tiles;
    const std::vector<Shape>* candidates;
    int stages;
  };
  const Range ranges[] = {
      {8, 8, 1, &four_groups, 4},
      {16, 16, 1, &four_groups, 4},
      {32, 32, 1, &four_groups, 6},
      {64, 64, 1, &two_groups, 6},
      {128, 128, 1, &two_row_groups, 4},
      {256, 128, 2, &two_row_groups, 4},
      {kLargestGridY * 128, 128, 4, &two_row_groups, 4},
  };
  std::vector<Sm90Choice> choices;
  for (const Range& range : ranges) {
    config.tokens = range.tokens;
    choices.push_back(Choose(config, shape, range.row_tiles, *range.candidates, range.stages));
    choices.back().largest_m = range.largest_m;
  }
  return choices;
}

}  // namespace gemmd
