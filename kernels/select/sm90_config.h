// What    Sm90Config: everything that device/gemm_sm90.cuh and gemm_sm90_slab.cuh are specialised
//         on, and what they can serve. Which config serves a layer at which M: select/sm90_choice.h.
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
#include "kernels/contract/sm90_operand.h"

namespace gemmd {

struct Sm90Config {
  NumberFormat weight;
  NumberFormat group_scale;  // as packed; kNoFormat when scales are per row
  ZeroPointKind zero_point = ZeroPointKind::kNone;
  ElementType x_type = ElementType::kBFloat16;
  int scale_step = 128;            // columns
  bool scale_on_weights = false;   // group scales multiply the decoded weights, not their sums
  bool scale_is_relative = false;  // to their row's largest, so that decoding may raise them
  bool has_x_scales = false;       // x has scales per 128 columns, or multiples of them
  bool shares_scales = false;      // all rows of a tile of w have the same; they go with those of x
  int tokens = 8;
  int row_groups = 4;
  int column_groups = 1;
  int stage_slabs = PackedLayout::kSlabsPerChunk;  // per column group; 1: gemm_sm90_slab.cuh
  int stages = 4;
  int sharers = 1;  // neighbouring blocks of a cluster that copy x for each other
  int weight_sharers = 1;  // or weights, with neighbouring tiles of x; of gemm_sm90_slab.cuh
  // Blocks of a cluster each sum a part of K. Of gemm_sm90_slab.cuh, which stores y in one way or the other;
  // gemm_sm90.cuh does both.
  bool splits_k = false;
  bool half_sums = false;  // the matrix unit sums in float16 (fp16_accumulation); of gemm_sm90_slab.cuh

  Sm90Operand operand() const { return {weight, x_type}; }
  PackedLayout layout() const;  // of the packed weights
  PackedLayout unit() const;    // in a stage
  // Whether the matrix unit sums over all of K, as device/matrix_step_sm90.cuh does it.
  bool sums_in_unit() const;
  // Whether `half_sums` may be true.
  bool can_have_half_sums() const;
  // device/gemm_sm90_slab.cuh; x needs a map (launch/tensor_maps.h).
  bool is_slabwise() const { return stage_slabs == 1; }
  int partners() const { return sharers * weight_sharers; }  // blocks that copy for each other
  Sm90Block block() const {
    return {unit(), tokens, row_groups, column_groups, stages, has_x_scales};
  }
};

template <typename Visitor>
void VisitFields(const Sm90Config& config, Visitor&& visit) {
  const auto& [weight, group_scale, zero_point, x_type, scale_step, scale_on_weights,
               scale_is_relative, has_x_scales, shares_scales, tokens, row_groups, column_groups,
               stage_slabs, stages, sharers, weight_sharers, splits_k, half_sums] = config;
  visit("kWeight", weight);
  visit("kGroupScale", group_scale);
  visit("kZeroPoint", zero_point);
  visit("kXType", x_type);
  visit("kScaleStep", scale_step);
  visit("kScaleOnWeights", scale_on_weights);
  visit("kScaleIsRelative", scale_is_relative);
  visit("kHasXScales", has_x_scales);
  visit("kSharesScales", shares_scales);
  visit("kTokens", tokens);
  visit("kRowGroups", row_groups);
  visit("kColumnGroups", column_groups);
  visit("kStageSlabs", stage_slabs);
  visit("kStages", stages);
  visit("kSharers", sharers);
  visit("kWeightSharers", weight_sharers);
  visit("kSplitsK", splits_k);
  visit("kHalfSums", half_sums);
}

std::string RenderProgram(const Sm90Config& config);
std::string KernelNameExpression(const Sm90Config& config);
std::vector<std::pair<std::string, std::string>> DescribeFields(const Sm90Config& config);
// "gemm_sm90_bf16_int4_bf16s128_8x256x128": x, weight, scale and columns it is for, tokens x rows x columns;
// then "_share2" or "_wshare2" with two sharers of x or of weights, "_split" when it splits K,
// "_f16sums" when it sums in float16.
std::string KernelName(const Sm90Config& config);

// Types of x that have kernels for the layer: the layer's own activation type when it has one of 8 bits,
// else the 16-bit floats that hold its weights exactly.
std::vector<ElementType> Sm90XTypes(const QuantSpec& spec);

// Whether the kernel computes this layer as exactly as the generic one, for every type of Sm90XTypes.
absl::Status SupportsSm90(const QuantSpec& spec, const LayerShape& shape,
                          const std::string& architecture);

// Whether weights of such a layer may turn out to be of those that only the generic kernel takes
// (pack/pack_weights.h). Needs SupportsSm90, as all below.
bool Sm90MayNotFit(const QuantSpec& spec);

// How the layer's weights are packed.
struct Sm90Packing {
  NumberFormat group_scale;
  PackedLayout layout;
  Sm90Operand operand;  // kBFloat16 stands for both 16-bit types
  // Group scales are packed relative to the power of two of their row's largest, which the row's factor
  // holds: products with weights then stay in range.
  bool is_relative = false;
  // Group scales are packed as steps of Sm90Operand::kFoldedSteps.
  bool is_folded = false;
};
Sm90Packing Sm90PackingOf(const QuantSpec& spec, const LayerShape& shape);

// Whether group scales multiply the decoded weights exactly, in x's type.
bool Sm90ScalesWeights(const QuantSpec& spec, const Sm90Packing& packing, ElementType x_type);

// Whether the kernels take x with group scales, and only such x.
bool Sm90TakesXScales(const QuantSpec& spec, const LayerShape& shape);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_SELECT_SM90_CONFIG_H_
