// What    Where a layer's tensors lie -> the arguments of its kernels.
// Errors  ElementTypeOf: Unimplemented UNSUPPORTED_DTYPE.
// Threads Pure functions.
#ifndef GEMMD_KERNELS_WEIGHT_ARGS_H_
#define GEMMD_KERNELS_WEIGHT_ARGS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/contract/element_type.h"
#include "kernels/contract/gemm_args.h"
#include "kernels/contract/quant_spec.h"

namespace gemmd {

// Device addresses of a layer's tensors; 0 where the layer has none.
struct LayerAddresses {
  uintptr_t codes = 0;
  uintptr_t scales = 0;
  uintptr_t zero_points = 0;
  uintptr_t secondary_scales = 0;
  uintptr_t group_index = 0;
  uintptr_t bias = 0;
  uintptr_t packed = 0;
  uintptr_t channel_factor = 0;
};

// `shape` passes SupportsShape (select/legality.h).
WeightArgs MakeWeightArgs(const QuantSpec& spec, const LayerShape& shape, int64_t scale_columns,
                          const LayerAddresses& addresses);

// The kernels' name of an element type.
absl::StatusOr<ElementType> ElementTypeOf(const NumberFormat& format, bool is_signed_int);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_WEIGHT_ARGS_H_
