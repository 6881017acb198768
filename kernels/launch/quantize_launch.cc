#include "kernels/launch/quantize_launch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/status.h"
#include "kernels/launch/gemm_launch.h"

namespace gemmd {
namespace {

constexpr int64_t kLargestQuantizeGrid = (int64_t{1} << 31) - 1;
constexpr int64_t kRowBytes = 16;  // rows of codes start at multiples: the kernel's stores, and copies of x by the GEMM

uint64_t RoundUp(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

uint64_t CodeBytes(const QuantizeKernel& kernel, int64_t elements) {
  return static_cast<uint64_t>(elements) * static_cast<uint64_t>(ElementBytes(kernel.code_type));
}

// The GEMM's scales of x are those that were written beside the codes.
void SetDynamicScales(const QuantizeKernel& kernel, const QuantizeArgs& quantize, GemmArgs& gemm) {
  if (kernel.mode == QuantizeMode::kDynamicToken) {
    gemm.row_scale = quantize.scales;
    gemm.row_scale_stride = quantize.scales_row_stride;
    return;
  }
  gemm.group_scale = quantize.scales;
  gemm.group_scale_stride = quantize.scales_row_stride;
  gemm.group_scale_columns = static_cast<int32_t>(kernel.group);
  gemm.split_activations = 1;
}

}  // namespace

QuantizeWorkspace LayoutQuantizeWorkspace(const QuantizeKernel& kernel, int64_t rows) {
  QuantizeWorkspace layout;
  layout.codes_row_stride =
      static_cast<int64_t>(RoundUp(static_cast<uint64_t>(kernel.k), kRowBytes / CodeBytes(kernel, 1)));
  layout.scales = RoundUp(CodeBytes(kernel, rows * layout.codes_row_stride), 256);
  constexpr uint64_t kGroupAlignment = 16 / sizeof(float);
  const auto groups = static_cast<uint64_t>(HasDynamicScales(kernel.mode) ? kernel.groups() : 0);
  const bool per_group = kernel.mode == QuantizeMode::kDynamicGroup;
  layout.scales_row_stride =
      static_cast<int64_t>(per_group ? RoundUp(groups, kGroupAlignment) : groups);
  layout.bytes =
      layout.scales + static_cast<uint64_t>(rows * layout.scales_row_stride) * sizeof(float);
  return layout;
}

int64_t QuantizeRowsAtATime(const QuantizeKernel& kernel, int64_t rows, uint64_t budget_bytes) {
  const QuantizeWorkspace row = LayoutQuantizeWorkspace(kernel, 1);
  const uint64_t per_row = CodeBytes(kernel, row.codes_row_stride) +
                           static_cast<uint64_t>(row.scales_row_stride) * sizeof(float);
  const auto fitting = static_cast<int64_t>(std::max<uint64_t>(budget_bytes / per_row, 1));
  return std::min({fitting, kLargestQuantizeGrid, std::max<int64_t>(rows, 1)});
}

cuda::LaunchGrid QuantizeGrid(const QuantizeKernel& kernel, int64_t rows) {
  cuda::LaunchGrid grid;
  grid.grid.x = static_cast<unsigned>(rows);
  grid.grid.y = static_cast<unsigned>((kernel.k + kernel.slice_columns - 1) / kernel.slice_columns);
  grid.block.x = static_cast<unsigned>(kernel.threads);
  grid.dynamic_shared_bytes = static_cast<unsigned>(kernel.shared_bytes);
  grid.overlaps_previous = kernel.overlaps_previous;
  return grid;
}

absl::Status LaunchQuantize(const cuda::DriverTable& driver, const QuantizeKernel& kernel,
                            const QuantizeArgs& args, CUstream stream) {
  if (args.m == 0) return absl::OkStatus();
  if (args.m > kLargestQuantizeGrid) {
    return Error(absl::StatusCode::kInvalidArgument, "SHAPE_MISMATCH",
                 absl::StrCat("x has ", args.m, " rows, a launch takes ", kLargestQuantizeGrid));
  }
  QuantizeArgs copy = args;
  copy.k = kernel.k;
  copy.group = kernel.group;
  copy.slice_columns = kernel.slice_columns;
  void* params[] = {&copy};
  return cuda::LaunchKernel(driver, kernel.kernel, QuantizeGrid(kernel, args.m), stream, params);
}

QuantizedGemm QuantizeInFront(const QuantizeKernel& kernel, const GemmArgs& args,
                              const QuantizeTensors& tensors, uintptr_t workspace) {
  const QuantizeWorkspace layout = LayoutQuantizeWorkspace(kernel, args.m);
  QuantizedGemm both{};
  QuantizeArgs& quantize = both.quantize;
  quantize.x = args.x;
  quantize.codes = reinterpret_cast<void*>(workspace);
  quantize.static_scale = tensors.static_scale;
  quantize.input_scale = tensors.input_scale;
  quantize.x_row_stride = args.x_row_stride;
  quantize.codes_row_stride = layout.codes_row_stride;
  quantize.m = args.m;
  both.gemm = args;
  GemmArgs& gemm = both.gemm;
  gemm.x = quantize.codes;
  gemm.x_row_stride = layout.codes_row_stride;
  gemm.x_type = kernel.code_type;
  gemm.split_activations = kernel.code_type == ElementType::kFloat32;
  if (kernel.mode == QuantizeMode::kStaticTensor) {
    gemm.weights.activation_scale = tensors.static_scale;
  }
  if (HasDynamicScales(kernel.mode)) {
    quantize.scales = reinterpret_cast<float*>(workspace + layout.scales);
    quantize.scales_row_stride = layout.scales_row_stride;
    SetDynamicScales(kernel, quantize, gemm);
  }
  return both;
}

absl::Status LaunchQuantizedDense(const cuda::DriverTable& driver, const QuantizedDense& launch,
                                  CUstream stream) {
  const int64_t m = launch.args.m;
  for (int64_t first = 0; first < m; first += launch.rows_at_a_time) {
    const int64_t rows = std::min(launch.rows_at_a_time, m - first);
    const QuantizedGemm both = QuantizeInFront(*launch.quantizer, RowsOf(launch.args, first, rows),
                                               launch.tensors, launch.workspace);
    GEMMD_RETURN_IF_ERROR(LaunchQuantize(driver, *launch.quantizer, both.quantize, stream));
    GEMMD_RETURN_IF_ERROR(LaunchDense(driver, *launch.gemm, both.gemm, stream));
  }
  return absl::OkStatus();
}

}  // namespace gemmd
