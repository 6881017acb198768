// What    Reference of activation quantization: one row of x to elements and scales. A device that
//         quantizes activations must give these values for the modes of QuantSpec; the other modes
//         are what exporters' own code does.
// Errors  None: a NaN or infinity makes the scale of its row or group NaN or infinite, and with it
//         what is dequantized there; other rows and groups do not see it.
// Threads Pure functions.
// Source  README.md, "Scale rules".
#ifndef GEMMD_CORE_QUANT_ACTIVATIONS_H_
#define GEMMD_CORE_QUANT_ACTIVATIONS_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/quant/scale_rule.h"
#include "core/quant/standard_tensor.h"

namespace gemmd {

struct ActivationScaling {
  NumberFormat element;           // integers are two's complement here
  NumberFormat scale = kFloat32;  // kFloat32, kFloat8E8M0 or kFloat8E4M3
  int64_t group = 0;              // columns that share a scale; 0 = the row
  ScaleRule rule = ScaleRule::kLargest;
  bool asymmetric = false;      // integers: with a zero point
  float global_scale = 1;       // divides what is dequantized (NVFP4)
  float zero_scale = 1;         // scale where everything is 0
  float static_scale = 0;       // not 0: the scale of everything
  float static_zero_point = 0;  // with it, and `asymmetric`: the zero point
};

struct QuantizedRow {
  std::vector<float> elements;     // as numbers, exact in the element type
  std::vector<float> scales;       // one per group
  std::vector<float> zero_points;  // one per group with `asymmetric`
};

// The type of activations that the layer asks for, those with zero points too; kNoFormat: none.
NumberFormat WantedActivation(const StandardTensor& tensor);

// Why the CPU device, the reference, uses x of 16 or 32 bits as it is; empty: it makes codes of the wanted type of
// it.
std::string WhyNotQuantized(const StandardTensor& tensor);

// What `spec` asks for: element, group and static scale. Scales are float32.
ActivationScaling ScalingOf(const QuantSpec& spec, float static_scale);

// What the layer asks for: element, group, type of the group scales, static scale and zero point of
// `expert`.
ActivationScaling ScalingOf(const StandardTensor& tensor, int64_t expert = 0);

QuantizedRow QuantizeActivations(absl::Span<const float> row, const ActivationScaling& scaling);

// fl32((element - zero point) * fl32(scale / global_scale)).
std::vector<float> DequantizeActivations(const QuantizedRow& row, const ActivationScaling& scaling);

}  // namespace gemmd

#endif  // GEMMD_CORE_QUANT_ACTIVATIONS_H_
