// What    The exact meaning of a StandardTensor, in double precision, and what follows from it.
// Source  w = (code - zero_point) * scale * secondary; kernels/contract/quant_spec.h.
// Threads Pure functions.
#ifndef GEMMD_CORE_QUANT_REFERENCE_H_
#define GEMMD_CORE_QUANT_REFERENCE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "core/quant/standard_tensor.h"

namespace gemmd {

// Value of `code` (low format.bits bits). Integers give the code itself: the zero point is not taken off.
double DecodeNumber(const NumberFormat& format, uint32_t code);

// Nearest code to `value`, ties to the even significand (so up between powers of two without mantissa
// bits, as ml_dtypes and torch do). What is beyond the largest finite value gives infinity in IEEE
// formats of 16 bits and more (as a store of a GEMM result does) and saturates in all others. NaN gives the
// format's NaN, or 0 where it has none. e8m0 has no zero and no sign: both give its smallest code.
uint32_t EncodeNumber(const NumberFormat& format, double value);

// w[expert, row, 0..K) in double precision. `out` has K elements.
void DequantizeRow(const StandardTensor& tensor, int64_t expert, int64_t row,
                   absl::Span<double> out);

// The same in float32 with the roundings exporters use: fl32((code - z) * s), or with a secondary scale
// fl32(v * fl32(s * secondary)). Bit-exact against the golden vectors.
void DequantizeRowFloat32(const StandardTensor& tensor, int64_t expert, int64_t row,
                          absl::Span<float> out);

// The same where weights have 16 or 32 bits and no scale: exact.
void UnquantizedRow(const StandardTensor& tensor, int64_t expert, int64_t row, absl::Span<float> out);

// bias[expert, row], 0 without bias.
double Bias(const StandardTensor& tensor, int64_t expert, int64_t row);

}  // namespace gemmd

#endif  // GEMMD_CORE_QUANT_REFERENCE_H_
