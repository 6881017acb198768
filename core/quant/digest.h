// What    What is in a layer, from one pass over its bytes.
// Threads Pure functions.
#ifndef GEMMD_CORE_QUANT_DIGEST_H_
#define GEMMD_CORE_QUANT_DIGEST_H_

#include <cstdint>
#include <string>

#include "core/quant/standard_tensor.h"

namespace gemmd {

struct LayerContent {
  std::string digest;              // as Digest gives it
  int64_t not_finite_weights = 0;  // as CountNotFinite
};

// Of a valid tensor.
LayerContent ContentOf(const StandardTensor& tensor);

}  // namespace gemmd

#endif  // GEMMD_CORE_QUANT_DIGEST_H_
