// What    x -> 8-bit codes and scales, or x times the factors of its columns in 16 or 32 bits: one launch in
//         front of a GEMM on the same stream.
// Units   Workspace in bytes.
// Errors  As cuda::LaunchKernel; InvalidArgument SHAPE_MISMATCH: more rows than a grid has.
// Threads Any; the context must be current. No allocation, lock or driver query.
#ifndef GEMMD_KERNELS_LAUNCH_QUANTIZE_LAUNCH_H_
#define GEMMD_KERNELS_LAUNCH_QUANTIZE_LAUNCH_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "kernels/contract/element_type.h"
#include "kernels/contract/gemm_args.h"
#include "kernels/contract/quantize_args.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/launch.h"
#include "kernels/launch/gemm_plan.h"

namespace gemmd {

// A planned kernel for one K and one type of x.
struct QuantizeKernel {
  CUkernel kernel = nullptr;
  std::string name;
  ElementType x_type = ElementType::kBFloat16;
  ElementType code_type = ElementType::kFloat8E4M3;
  QuantizeMode mode = QuantizeMode::kDynamicToken;
  bool multiplies = false;  // by QuantizeArgs::input_scale
  int64_t k = 0;
  int64_t group = 0;  // with groups
  int64_t slice_columns = 0;
  int threads = 0;
  int shared_bytes = 0;
  bool overlaps_previous = false;  // as in GemmKernel

  int64_t groups() const {
    return mode == QuantizeMode::kDynamicGroup ? (k + group - 1) / group : 1;
  }
};

// Codes and scales of `rows` rows.
struct QuantizeWorkspace {
  int64_t codes_row_stride = 0;   // elements; a multiple of 16 bytes
  int64_t scales_row_stride = 0;  // group scales: a multiple of 4, as launch/tensor_maps.h wants them
  uint64_t scales = 0;            // offset; codes are at 0
  uint64_t bytes = 0;
};
QuantizeWorkspace LayoutQuantizeWorkspace(const QuantizeKernel& kernel, int64_t rows);
// Rows whose workspace stays near `budget_bytes`, at least 1.
int64_t QuantizeRowsAtATime(const QuantizeKernel& kernel, int64_t rows, uint64_t budget_bytes);

// A block per row and slice.
cuda::LaunchGrid QuantizeGrid(const QuantizeKernel& kernel, int64_t rows);

// Grid and block follow `kernel`; its mode, K and group stand for those of `args`.
absl::Status LaunchQuantize(const cuda::DriverTable& driver, const QuantizeKernel& kernel,
                            const QuantizeArgs& args, CUstream stream);

// Of the layer, on the device; null where it has none.
struct QuantizeTensors {
  const float* static_scale = nullptr;
  const float* input_scale = nullptr;  // [K]
};

// Quantizes x of `args` into the workspace at `workspace` (aligned to 256), and returns the arguments
// of the GEMM on what it gives.
struct QuantizedGemm {
  QuantizeArgs quantize;
  GemmArgs gemm;
};
QuantizedGemm QuantizeInFront(const QuantizeKernel& kernel, const GemmArgs& args,
                              const QuantizeTensors& tensors, uintptr_t workspace);

// Quantization and GEMM of all rows, at most `rows_at_a_time` of them in the workspace at a time.
struct QuantizedDense {
  const QuantizeKernel* quantizer;
  const GemmKernel* gemm;
  GemmArgs args;  // x as the request gives it
  QuantizeTensors tensors;
  uintptr_t workspace;  // LayoutQuantizeWorkspace(*quantizer, rows_at_a_time).bytes
  int64_t rows_at_a_time;
};
absl::Status LaunchQuantizedDense(const cuda::DriverTable& driver, const QuantizedDense& launch,
                                  CUstream stream);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_LAUNCH_QUANTIZE_LAUNCH_H_
