// What    Weights of a layer that are NaN or infinite. Readers refuse them in quantized weights; unquantized ones may
//         hold them, and then every product with their row does.
// Threads Pure functions.
#ifndef GEMMD_CORE_QUANT_NOT_FINITE_H_
#define GEMMD_CORE_QUANT_NOT_FINITE_H_

#include <cstddef>
#include <cstdint>

#include "core/quant/standard_tensor.h"

namespace gemmd {

// Of `size` bytes of codes of `format`, which has 8, 16 or 32 bits.
int64_t CountNotFiniteCodes(const NumberFormat& format, const std::byte* codes, size_t size);

// Of a valid tensor: codes that stand for NaN or an infinity; 0 in types that have neither.
int64_t CountNotFinite(const StandardTensor& tensor);

}  // namespace gemmd

#endif  // GEMMD_CORE_QUANT_NOT_FINITE_H_
