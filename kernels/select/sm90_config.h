// What    Sm90Config: everything that device/gemm_sm90.cuh is specialised on, what it can serve and
//         which configs serve a layer at which M.
// Errors  SupportsSm90: Unimplemented NO_KERNEL with the reason; the generic kernel serves the
//         layer.
// Keys    VisitFields is the only field list, as in select/gemm_config.h.
// Threads Pure functions.
#ifndef GEMMD_KERNELS_SELECT_SM90_CONFIG_H_
#define GEMMD_KERNELS_SELECT_SM90_CONFIG_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/contract/element_type.h"
#include "kernels/contract/number_format.h"
#include "kernels/contract/quant_spec.h"
#include "kernels/contract/sm90_block.h"

namespace gemmd {

struct Sm90Config {
  NumberFormat weight;
  NumberFormat group_scale;  // as packed; kNoFormat when scales are per row
  ZeroPointKind zero_point = ZeroPointKind::kNone;
  ElementType x_type = ElementType::kBFloat16;
  int scale_step = PackedLayout::kChunkColumns;
  int tokens = 8;
  int row_groups = 4;
  int column_groups = 1;
  int stages = 4;

  Sm90Block block() const {
    return {{group_scale.bits / 8, scale_step, zero_point == ZeroPointKind::kInteger},
            tokens,
            row_groups,
            column_groups,
            stages};
  }
};

template <typename Visitor>
void VisitFields(const Sm90Config& config, Visitor&& visit) {
  const auto& [weight, group_scale, zero_point, x_type, scale_step, tokens, row_groups,
               column_groups, stages] = config;
  visit("kWeight", weight);
  visit("kGroupScale", group_scale);
  visit("kZeroPoint", zero_point);
  visit("kXType", x_type);
  visit("kScaleStep", scale_step);
  visit("kTokens", tokens);
  visit("kRowGroups", row_groups);
  visit("kColumnGroups", column_groups);
  visit("kStages", stages);
}

std::string RenderProgram(const Sm90Config& config);
std::string KernelNameExpression(const Sm90Config& config);
std::vector<std::pair<std::string, std::string>> DescribeFields(const Sm90Config& config);
// "gemm_sm90_bf16_int4_bf16g128_8x256x128": x, weight, scale and columns it is for, tokens x rows x columns.
std::string KernelName(const Sm90Config& config);

// Whether the kernel computes this layer as exactly as the generic one.
absl::Status SupportsSm90(const QuantSpec& spec, const LayerShape& shape,
                          const std::string& architecture);

// How the layer's weights are packed. Needs SupportsSm90.
struct Sm90Packing {
  NumberFormat group_scale;
  PackedLayout layout;
};
Sm90Packing Sm90PackingOf(const QuantSpec& spec, const LayerShape& shape);

struct Sm90Choice {
  int64_t largest_m;
  Sm90Config config;
  int cluster;  // blocks that share the columns of one tile
};
// Ascending in M. The last bound is what a grid can count; above it the generic kernel serves.
std::vector<Sm90Choice> ChooseSm90(const QuantSpec& spec, const LayerShape& shape,
                                   ElementType x_type);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_SELECT_SM90_CONFIG_H_
