// What    QuantizeConfig: everything that device/quantize_x.cuh is specialised on, and which config
//         serves a layer.
// Errors  ChooseQuantize: Unimplemented NO_KERNEL with the reason; x is then used in the type the request
//         gives.
// Keys    VisitFields is the only field list, as in select/gemm_config.h.
// Threads Pure functions.
#ifndef GEMMD_KERNELS_SELECT_QUANTIZE_CONFIG_H_
#define GEMMD_KERNELS_SELECT_QUANTIZE_CONFIG_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/contract/element_type.h"
#include "kernels/contract/quant_spec.h"
#include "kernels/contract/quantize_args.h"

namespace gemmd {

struct QuantizeConfig {
  ElementType x_type = ElementType::kBFloat16;
  ElementType code_type = ElementType::kFloat8E4M3;
  QuantizeMode mode = QuantizeMode::kDynamicToken;
  InputActivation activation = InputActivation::kNone;
  bool input_scale = false;  // a factor for each column, before the transform
  int hadamard_block = 0;    // columns; 0 = no transform
  int unit = 0;            // columns of one largest magnitude, with groups; divides them
  int threads = 256;

  // Columns that a block keeps in registers; with a gate half of them.
  int64_t held_columns() const { return int64_t{threads} * 32; }
};

template <typename Visitor>
void VisitFields(const QuantizeConfig& config, Visitor&& visit) {
  const auto& [x_type, code_type, mode, activation, input_scale, hadamard_block, unit, threads] = config;
  visit("kXType", x_type);
  visit("kCodeType", code_type);
  visit("kMode", mode);
  visit("kActivation", activation);
  visit("kInputScale", input_scale);
  visit("kHadamardBlock", hadamard_block);
  visit("kUnit", unit);
  visit("kThreads", threads);
}

std::string RenderProgram(const QuantizeConfig& config);
std::string KernelNameExpression(const QuantizeConfig& config);
std::vector<std::pair<std::string, std::string>> DescribeFields(const QuantizeConfig& config);
// "quantize_bf16_e4m3_token_256": x, codes, scales, threads. "quantize_bf16_bf16_scaled_64": x is multiplied and
// not quantized.
std::string KernelName(const QuantizeConfig& config);

// What is to be quantized.
struct QuantizeProblem {
  ElementType x_type = ElementType::kBFloat16;
  ElementType code_type = ElementType::kFloat8E4M3;
  QuantizeMode mode = QuantizeMode::kDynamicToken;
  int64_t k = 0;
  int64_t group = 0;  // columns per scale with groups, fewer than k
  InputActivation activation = InputActivation::kNone;
  bool input_scale = false;
  int hadamard_block = 0;
};

// A config and how it is launched for one K.
struct QuantizeChoice {
  QuantizeConfig config;
  int64_t slice_columns = 0;  // QuantizeArgs::slice_columns
  int shared_bytes = 0;
};

absl::StatusOr<QuantizeChoice> ChooseQuantize(const QuantizeProblem& problem);

// x of `x_type` times the factors of its columns. It keeps its type; of 8 bits it becomes float32.
QuantizeProblem ScaleProblemOf(int64_t k, ElementType x_type);

// What `spec` asks for, for x of `x_type`. NO_KERNEL when it asks for nothing that 8-bit codes give.
absl::StatusOr<QuantizeProblem> QuantizeProblemOf(const QuantSpec& spec, int64_t k,
                                                  ElementType x_type);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_SELECT_QUANTIZE_CONFIG_H_
