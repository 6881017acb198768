// What    Reference of the Hadamard transform of x: every block of B columns becomes H h / sqrt(B) with
//         H[i, j] = (-1)^(number of ones in i & j), Sylvester's order. A device must give these numbers.
// Threads Pure function.
// Source  README.md, "Hadamard transform".
#ifndef GEMMD_CORE_QUANT_HADAMARD_H_
#define GEMMD_CORE_QUANT_HADAMARD_H_

#include <cstdint>

#include "absl/types/span.h"

namespace gemmd {

// One row, in place: rounded to float32 first and after every step; `block` is a power of two that divides its
// length. A NaN or infinity stays in its block.
void TransformByHadamard(int64_t block, absl::Span<double> row);

}  // namespace gemmd

#endif  // GEMMD_CORE_QUANT_HADAMARD_H_
