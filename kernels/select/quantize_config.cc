#include "kernels/select/quantize_config.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/select/gemm_config.h"
#include "kernels/select/render.h"

namespace gemmd {
namespace {

constexpr int kLargestUnit = 128;
constexpr int kMostThreads = 1024;
constexpr int64_t kLargestK = int64_t{1} << 30;  // columns are counted in 31 bits
constexpr int64_t kMostSlices = 65535;           // of a grid
constexpr int64_t kSharedBytes = 48 << 10;

// `reason`: what stands behind "x is used as it is:".
absl::Status NoQuantizeKernel(absl::string_view reason) {
  return Error(absl::StatusCode::kUnimplemented, "NO_KERNEL", reason);
}

// Columns in 16 bytes of x.
int PieceColumns(ElementType x_type) { return 16 / ElementBytes(x_type); }

// The largest power of two up to kLargestUnit that divides the group.
int UnitOf(int64_t group) {
  int unit = kLargestUnit;
  while (group % unit != 0) unit /= 2;
  return unit;
}

absl::Status CheckHadamard(const QuantizeProblem& problem) {
  const int block = problem.hadamard_block;
  if (block == 0) return absl::OkStatus();
  if (!IsHadamardBlock(block)) {
    return NoQuantizeKernel(absl::StrCat("Hadamard blocks of ", block,
                                         " columns are no power of two of 2 to ",
                                         kLargestHadamardBlock));
  }
  if (problem.k % block != 0) {
    return NoQuantizeKernel(
        absl::StrCat("K = ", problem.k, " is no multiple of the Hadamard block ", block));
  }
  return absl::OkStatus();
}

// Columns that no slice may cut: groups and Hadamard blocks.
absl::StatusOr<int64_t> SliceStep(const QuantizeProblem& problem) {
  const int64_t group = problem.group;
  const int64_t block = problem.hadamard_block;
  if (group % PieceColumns(problem.x_type) != 0) {
    return NoQuantizeKernel(absl::StrCat("groups of ", group, " columns are no multiple of ",
                                         PieceColumns(problem.x_type)));
  }
  if (block == 0 || group % block == 0) return group;
  if (block % group == 0) return block;
  return NoQuantizeKernel(absl::StrCat("groups of ", group, " columns and Hadamard blocks of ",
                                       block, " do not fit each other"));
}

// The fewest that hold `columns` in registers, and a Hadamard block in one chunk.
int ThreadsFor(const QuantizeProblem& problem, int64_t columns) {
  const int least = std::max(64, problem.hadamard_block / PieceColumns(problem.x_type));
  int threads = least;
  while (threads < kMostThreads && int64_t{threads} * 32 < columns) threads *= 2;
  return threads;
}

// The shortest, of whole `step`s, with which a grid holds a row.
int64_t LeastSlice(const QuantizeProblem& problem, int64_t step) {
  const int64_t needed = (problem.k + kMostSlices - 1) / kMostSlices;
  return (needed + step - 1) / step * step;
}

int64_t SharedBytes(const QuantizeConfig& config, int64_t slice_columns) {
  const int piece = PieceColumns(config.x_type);
  const int64_t exchange = config.hadamard_block > 32 * piece ? int64_t{config.threads} * piece : 0;
  int64_t maxima = 0;
  if (config.mode == QuantizeMode::kDynamicToken) maxima = config.threads / 32;
  if (config.mode == QuantizeMode::kDynamicGroup) {
    maxima = (slice_columns + config.unit - 1) / config.unit;
  }
  return (exchange + maxima) * int64_t{sizeof(float)};
}

std::string TypeName(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return "f32";
    case ElementType::kFloat16:
      return "f16";
    case ElementType::kBFloat16:
      return "bf16";
    case ElementType::kFloat8E4M3:
      return "e4m3";
    case ElementType::kFloat8E5M2:
      return "e5m2";
    case ElementType::kInt8:
      break;
  }
  return "int8";
}

std::string ModeName(const QuantizeConfig& config) {
  switch (config.mode) {
    case QuantizeMode::kStaticTensor:
      return "static_";
    case QuantizeMode::kDynamicToken:
      return "token_";
    case QuantizeMode::kDynamicGroup:
      return absl::StrCat("group", config.unit, "_");
    case QuantizeMode::kNone:
      break;
  }
  return "";
}

std::string ActivationName(InputActivation activation) {
  switch (activation) {
    case InputActivation::kNone:
      return "";
    case InputActivation::kSiluAndMul:
      return "silu_";
    case InputActivation::kSwigluClamped:
      return "swiglu_";
    case InputActivation::kReluSquared:
      break;
  }
  return "relu2_";
}

}  // namespace

std::string RenderProgram(const QuantizeConfig& config) {
  return render::Program("quantize_x.cuh", config);
}

std::string KernelNameExpression(const QuantizeConfig&) {
  return "gemmd::device::QuantizeX<gemmd::device::Config>";
}

std::vector<std::pair<std::string, std::string>> DescribeFields(const QuantizeConfig& config) {
  return render::Fields(config);
}

std::string KernelName(const QuantizeConfig& config) {
  return absl::StrCat(
      "quantize_", TypeName(config.x_type), "_", TypeName(config.code_type), "_",
      ActivationName(config.activation), config.input_scale ? "scaled_" : "",
      config.hadamard_block > 0 ? absl::StrCat("h", config.hadamard_block, "_") : "",
      ModeName(config), config.threads);
}

absl::StatusOr<QuantizeChoice> ChooseQuantize(const QuantizeProblem& problem) {
  if (problem.k < 1 || problem.k > kLargestK) {
    return NoQuantizeKernel(absl::StrCat("K = ", problem.k, " is not within 1 to ", kLargestK));
  }
  GEMMD_RETURN_IF_ERROR(CheckHadamard(problem));
  QuantizeChoice choice;
  QuantizeConfig& config = choice.config;
  config.x_type = problem.x_type;
  config.code_type = problem.code_type;
  config.mode = problem.mode;
  config.activation = problem.activation;
  config.input_scale = problem.input_scale;
  config.hadamard_block = problem.hadamard_block;
  config.threads = ThreadsFor(problem, problem.k);
  choice.slice_columns = problem.k;
  if (problem.mode == QuantizeMode::kDynamicGroup) {
    GEMMD_ASSIGN_OR_RETURN(const int64_t step, SliceStep(problem));
    config.unit = UnitOf(problem.group);
    config.threads = std::min(config.threads, std::max(ThreadsFor(problem, step), 128));
    const int64_t fitting = std::max<int64_t>(config.held_columns() / step, 1) * step;
    choice.slice_columns = std::max(fitting, LeastSlice(problem, step));
  }
  if (problem.mode == QuantizeMode::kNone) {
    // Columns know nothing of each other: short slices share a row among many blocks.
    config.threads = ThreadsFor(problem, 1);
    const int64_t step = config.held_columns();  // of whole Hadamard blocks
    choice.slice_columns = std::min(problem.k, std::max(step, LeastSlice(problem, step)));
  }
  const int64_t shared = SharedBytes(config, choice.slice_columns);
  if (shared > kSharedBytes) {
    return NoQuantizeKernel(absl::StrCat("groups of ", problem.group, " columns take ", shared,
                                         " bytes of shared memory, beyond ", kSharedBytes));
  }
  choice.shared_bytes = static_cast<int>(shared);
  return choice;
}

QuantizeProblem ScaleProblemOf(int64_t k, ElementType x_type) {
  QuantizeProblem problem;
  problem.x_type = x_type;
  problem.code_type = ElementBytes(x_type) == 1 ? ElementType::kFloat32 : x_type;
  problem.mode = QuantizeMode::kNone;
  problem.k = k;
  problem.input_scale = true;
  return problem;
}

absl::StatusOr<QuantizeProblem> QuantizeProblemOf(const QuantSpec& spec, int64_t k,
                                                  ElementType x_type) {
  QuantizeProblem problem;
  problem.x_type = x_type;
  problem.k = k;
  if (ElementBytes(x_type) == 1) return NoQuantizeKernel("x has 8 bits already");
  if (spec.activation == kFloat8E4M3) {
    problem.code_type = ElementType::kFloat8E4M3;
  } else if (spec.activation == kFloat8E5M2) {
    problem.code_type = ElementType::kFloat8E5M2;
  } else if (spec.activation == kInt8) {
    problem.code_type = ElementType::kInt8;
  } else {
    return NoQuantizeKernel(absl::StrCat("the layer asks for ", NumberFormatName(spec.activation),
                                         " activations, which have no 8-bit codes"));
  }
  switch (spec.activation_scale) {
    case ActivationScaleKind::kNone:
      return NoQuantizeKernel("the layer does not say how activations are scaled");
    case ActivationScaleKind::kStaticTensor:
      problem.mode = QuantizeMode::kStaticTensor;
      break;
    case ActivationScaleKind::kDynamicToken:
      problem.mode = QuantizeMode::kDynamicToken;
      break;
    case ActivationScaleKind::kDynamicGroup:
      if (spec.activation_group >= k) break;  // one group: the row
      problem.mode = QuantizeMode::kDynamicGroup;
      problem.group = spec.activation_group;
      break;
  }
  return problem;
}

}  // namespace gemmd
