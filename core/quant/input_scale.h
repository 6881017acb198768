// What    Factors of the columns of x (AWQ's pre_quant_scale): y = (x * input_scale) W^T.
// Shapes  input_scale float32 [E, K]; a row of x has K elements.
// Threads Pure functions.
// Source  Meaning: core/quant/README.md, "Input scale".
#ifndef GEMMD_CORE_QUANT_INPUT_SCALE_H_
#define GEMMD_CORE_QUANT_INPUT_SCALE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/quant/standard_tensor.h"
#include "kernels/contract/layer_traits.h"

namespace gemmd {

// Whether a device multiplies x of type `x`: quantized elements in a layer that declares how activations
// are quantized were multiplied before.
bool MultipliesInput(const StandardTensor& tensor, const NumberFormat& x);

// One row of x for `expert`, in double precision.
void MultiplyInputScale(const StandardTensor& tensor, int64_t expert, absl::Span<double> x);

// Whether all columns of all experts have the same factor.
bool HasOneInputScale(const StandardTensor& tensor);

// The same layer without input scale, its factors multiplied into the scales of the weights: exact, so only
// where the factors of a group are equal and every product is a number of the scale's type. Else
// FailedPrecondition, naming the first column that is in the way.
absl::StatusOr<StandardTensor> FoldInputScale(const StandardTensor& tensor);

// What decides beside `tensor.spec` which kernels a GPU needs for the layer: the same before and after folding.
LayerTraits TraitsOf(const StandardTensor& tensor);

}  // namespace gemmd

#endif  // GEMMD_CORE_QUANT_INPUT_SCALE_H_
