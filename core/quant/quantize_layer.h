// What    A layer of unquantized weights (float16, bfloat16, float32) with its weights quantized: what a
//         registration with a target gets.
// Keeps   Bias and input scale. How activations are quantized is the target's.
// Rules   quantize.h.
// Errors  Of the target InvalidArgument BAD_SPEC, SHAPE_MISMATCH; Unimplemented UNSUPPORTED_SPEC for what cannot be
//         made from weights. Of the source InvalidArgument ALREADY_QUANTIZED, NOT_FINITE. Cancelled.
// Threads Pure functions, but for what `work` does (weight_quantizer.h).
#ifndef GEMMD_CORE_QUANT_QUANTIZE_LAYER_H_
#define GEMMD_CORE_QUANT_QUANTIZE_LAYER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/quant/scale_rule.h"
#include "core/quant/standard_tensor.h"
#include "core/quant/weight_quantizer.h"

namespace gemmd {

struct QuantizeTarget {
  QuantSpec spec;
  ScaleRule rule = ScaleRule::kLargest;
  ActivationEncoding encoding;  // of activations, where spec does not say it all

  // Equal for equal targets, and for those only.
  std::string Text() const;
};

// What a layer that was quantized here is told to be.
struct QuantizedHere {
  ScaleRule rule = ScaleRule::kLargest;
  QuantizationError error;  // of the modules that the layer was made of, before it was cut
};

// Whether anything can be quantized to `target`.
absl::Status CheckTarget(const QuantizeTarget& target);

// Whether weights like these can be; the buffers are not looked at.
absl::Status CheckUnquantized(const StandardTensor& source);

// Adds to `error` unless it is null. The source's weights live until the end: both are in memory.
absl::StatusOr<StandardTensor> QuantizeLayer(StandardTensor source, const QuantizeTarget& target,
                                             const QuantizeWork& work = {},
                                             QuantizationError* error = nullptr);

}  // namespace gemmd

#endif  // GEMMD_CORE_QUANT_QUANTIZE_LAYER_H_
