// What    GemmConfig: everything that makes one GEMM kernel, in three parts.
//           LayerConfig    what the numbers of the layer mean
//           ComputeConfig  which GEMM, with which arithmetic
//           TuningConfig   how it is cut into pieces
//         N, K and M are arguments of the kernel, not part of it; so are secondary scales and a group index.
// Keys    VisitFields is the only field list: the rendered program (and with it the cache key), the
//         log line and `explain` all come from it.
// Threads Pure functions.
#ifndef GEMMD_KERNELS_SELECT_GEMM_CONFIG_H_
#define GEMMD_KERNELS_SELECT_GEMM_CONFIG_H_

#include <string>
#include <utility>
#include <vector>

#include "kernels/contract/code_order.h"
#include "kernels/contract/number_format.h"
#include "kernels/contract/quant_spec.h"
#include "kernels/contract/row_mapping.h"

namespace gemmd {

struct LayerConfig {
  NumberFormat weight;
  NumberFormat scale;
  ZeroPointKind zero_point = ZeroPointKind::kNone;
  CodeOrder codes = CodeOrder::kRows;
};

struct ComputeConfig {
  RowMapping row_mapping = RowMapping::kDense;
  int weight_terms = 2;  // TF32 terms per weight: 1 when every weight is a TF32 number
};

struct TuningConfig {
  int block_m = 64;
  int block_n = 64;
  int block_k = 32;
  int warps_m = 2;
  int warps_n = 2;
  int threads() const { return warps_m * warps_n * 32; }
};

struct GemmConfig {
  LayerConfig layer;
  ComputeConfig compute;
  TuningConfig tuning;
};

template <typename Visitor>
void VisitFields(const GemmConfig& config, Visitor&& visit) {
  const auto& [layer, compute, tuning] = config;
  const auto& [weight, scale, zero_point, codes] = layer;
  visit("kWeight", weight);
  visit("kScale", scale);
  visit("kZeroPoint", zero_point);
  visit("kCodes", codes);
  const auto& [row_mapping, weight_terms] = compute;
  visit("kRowMapping", row_mapping);
  visit("kWeightTerms", weight_terms);
  const auto& [block_m, block_n, block_k, warps_m, warps_n] = tuning;
  visit("kBlockM", block_m);
  visit("kBlockN", block_n);
  visit("kBlockK", block_k);
  visit("kWarpsM", warps_m);
  visit("kWarpsN", warps_n);
}

// The whole program handed to the compiler: one include and `struct Config`.
std::string RenderProgram(const GemmConfig& config);
// Name expression of the kernel in that program.
std::string KernelNameExpression(const GemmConfig& config);

// (field, value) in the order of VisitFields, values as C++.
std::vector<std::pair<std::string, std::string>> DescribeFields(const GemmConfig& config);

// Short name for replies and logs: "gemm_tf32x2_int4_f16_dense_64x64x32"; "..._f16_packed_dense_..." when
// codes are packed.
std::string KernelName(const GemmConfig& config);

// "int4", "e2m1", "f16"; "none" for an absent tensor.
std::string NumberFormatName(const NumberFormat& format);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_SELECT_GEMM_CONFIG_H_
