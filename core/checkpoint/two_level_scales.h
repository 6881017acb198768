// What    Scales of two levels (NVFP4): one per group of columns, and one number above them by which they are divided or
//         multiplied. Weights use what that gives in float32, so it must be finite, as any scale must.
// Errors  InvalidArgument BAD_CHECKPOINT naming the tensor, the element and both numbers.
// Threads Pure functions.
#ifndef GEMMD_CORE_CHECKPOINT_TWO_LEVEL_SCALES_H_
#define GEMMD_CORE_CHECKPOINT_TWO_LEVEL_SCALES_H_

#include <string>

#include "absl/status/status.h"
#include "core/checkpoint/module_tensors.h"
#include "core/quant/standard_tensor.h"

namespace gemmd {

// Puts fl32(scale / divisor) into `tensor`: the reference divides, and multiplying by a rounded reciprocal is not the
// same. `scales` are e4m3 of all experts, `divisors` float32, one per expert.
absl::Status FoldDivisors(const ModuleTensors& tensors, const std::string& key, const TensorData& scales,
                          const std::string& divisor_key, const TensorData& divisors, StandardTensor& tensor);

// Of the scales of `tensor`, read from `key`, and its secondary scales, which are kept apart and multiply.
absl::Status CheckFactors(const ModuleTensors& tensors, const std::string& key, const std::string& factor_key,
                          const StandardTensor& tensor);

}  // namespace gemmd

#endif  // GEMMD_CORE_CHECKPOINT_TWO_LEVEL_SCALES_H_
