// What    Whether codes of infinity or NaN are among a layer's weights.
// Threads Pure function.
#ifndef GEMMD_KERNELS_PACK_SPECIAL_CODES_H_
#define GEMMD_KERNELS_PACK_SPECIAL_CODES_H_

#include <cstddef>

#include "absl/types/span.h"
#include "kernels/contract/number_format.h"
#include "kernels/contract/quant_spec.h"

namespace gemmd {

// `codes`: dense rows of codes of up to 16 bits; spare bits do not count.
bool HasSpecialCode(const NumberFormat& weight, const LayerShape& shape,
                    absl::Span<const std::byte> codes);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_PACK_SPECIAL_CODES_H_
