// What    Quantizes weights into the standard representation.
// Shapes  weights [E, N, K] float32, row-major.
// Rules   README.md, "Scale rules". Scales are rounded to their type first, codes follow from the
//         rounded scales: float32 quotient, nearest, ties to even, saturating. Nothing overflows. A
//         block of zeros gets scale 1.
// Errors  InvalidArgument SHAPE_MISMATCH, BAD_SPEC; NOT_FINITE naming the element. Unimplemented
//         UNSUPPORTED_SPEC for a group index, a bias, or static activation scales: they are not
//         made from weights.
// Threads Pure functions, but for what `work` does (weight_quantizer.h).
#ifndef GEMMD_CORE_QUANT_QUANTIZE_H_
#define GEMMD_CORE_QUANT_QUANTIZE_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/quant/scale_rule.h"
#include "core/quant/standard_tensor.h"
#include "core/quant/weight_quantizer.h"

namespace gemmd {

absl::StatusOr<StandardTensor> Quantize(absl::Span<const float> weights, const LayerShape& shape,
                                        const QuantSpec& spec,
                                        ScaleRule rule = ScaleRule::kLargest);

// The same of weights that come row by row, with the same result. Adds to `error` unless it is null.
absl::StatusOr<StandardTensor> QuantizeRows(WeightQuantizer::Read read, const LayerShape& shape,
                                            const QuantSpec& spec, ScaleRule rule,
                                            const QuantizeWork& work = {},
                                            QuantizationError* error = nullptr);

// Whether `spec` is one that weights can be quantized to.
absl::Status CheckCanBeMade(const QuantSpec& spec);

}  // namespace gemmd

#endif  // GEMMD_CORE_QUANT_QUANTIZE_H_
