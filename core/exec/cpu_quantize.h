// What    Which requests' x the CPU device quantizes, and one row of it: as core/quant/activations says, the
//         reference of every device.
// Threads Pure functions.
#ifndef GEMMD_CORE_EXEC_CPU_QUANTIZE_H_
#define GEMMD_CORE_EXEC_CPU_QUANTIZE_H_

#include "absl/types/span.h"
#include "core/quant/standard_tensor.h"

namespace gemmd {

// Whether x of type `x` becomes codes of the layer's activation type first: x of 16 or 32 bits, on a layer
// that asks for 8 bits and says how they are scaled.
bool QuantizesX(const StandardTensor& tensor, const NumberFormat& x);
// A row of x -> codes times scales, exact.
void QuantizeX(const StandardTensor& tensor, absl::Span<double> row);

}  // namespace gemmd

#endif  // GEMMD_CORE_EXEC_CPU_QUANTIZE_H_
