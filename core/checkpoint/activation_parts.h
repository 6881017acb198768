// What    How a checkpoint wants activations quantized, and the tensors that belong to it.
// Errors  InvalidArgument BAD_CHECKPOINT.
// Threads Pure functions.
// Source  Meaning: core/quant/README.md, "Activations" and "Input scale".
#ifndef GEMMD_CORE_CHECKPOINT_ACTIVATION_PARTS_H_
#define GEMMD_CORE_CHECKPOINT_ACTIVATION_PARTS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "core/checkpoint/module_tensors.h"
#include "core/quant/standard_tensor.h"

namespace gemmd {

// Activations as the request has them.
void SetNoActivation(StandardTensor& tensor);
// Dynamic scales: one per token, or per group of `group` columns when it is positive.
void SetDynamicActivation(const NumberFormat& format, int64_t group, StandardTensor& tensor);
// The static activation scale at `key`, one for the tensor or one for each expert.
absl::Status ReadStaticActivation(ModuleTensors& tensors, const std::string& key,
                                  const NumberFormat& format, StandardTensor& tensor);
// What the spec has no words for (ActivationEncoding): integers with a zero point in place of
// spec.activation, which must then be unset; and another type than float32 of the scales of its groups.
void SetAsymmetricActivation(const NumberFormat& format, ActivationScaleKind scale, int64_t group,
                             StandardTensor& tensor);
void SetGroupScaleType(const NumberFormat& scale, StandardTensor& tensor);
// The static scale and zero point of asymmetric activations.
absl::Status ReadStaticZeroPoint(ModuleTensors& tensors, const std::string& scale_key,
                                 const std::string& zero_point_key, StandardTensor& tensor);
// Symmetric activations may bring a zero point too: it must be 0.
absl::Status RequireNoZeroPoint(ModuleTensors& tensors, const std::string& key);
// e4m3 scales of the activations' groups, and the global scale at `key` above them. A factor is kept as
// the divisor fl32(1 / factor).
enum class GlobalScale { kDivisor, kFactor };
absl::Status ReadActivationGlobalScale(ModuleTensors& tensors, const std::string& key,
                                       GlobalScale meaning, StandardTensor& tensor);

// Factors of the columns of x at `key`, if there are any: [K]. All 1 changes nothing and is dropped.
absl::Status ReadInputScale(ModuleTensors& tensors, const std::string& key, StandardTensor& tensor);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_ACTIVATION_PARTS_H_
