// What    Elements of activations and outputs in host memory, to and from double precision.
// Shapes  One row of a MatrixView at a time.
// Why     The conversion to double is exact for every type; the conversion back rounds once, to
//         nearest even, straight from double: going through float would round twice.
#ifndef GEMMD_CORE_EXEC_CPU_NUMBERS_H_
#define GEMMD_CORE_EXEC_CPU_NUMBERS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/exec/device.h"

namespace gemmd {

// Bytes of one element in memory; element types have 8, 16, 32 or 64 bits.
inline int64_t ElementBytes(const NumberFormat& type) { return type.bits / 8; }

// "float16", "int8", "e4m3": for messages and reports.
std::string FormatName(const NumberFormat& type);

// Row `row` of `matrix` as doubles. Types: f32, f16, bf16, 8-bit floats, signed integers.
void ReadRow(const MatrixView& matrix, int64_t row, double* out);

// The int32 at (row, column).
int32_t ReadInt32(const MatrixView& matrix, int64_t row, int64_t column);

// out[0..count) to elements [column, column + count) of `row`, rounded once. Types: f32, f16, bf16.
// A finite value beyond the largest finite one becomes infinite, as IEEE rounding says.
void WriteRow(const MatrixView& matrix, int64_t row, int64_t column, const double* values,
              int64_t count);

// `value` rounded once to `type` (f32, f16, bf16), as a double.
double RoundTo(const NumberFormat& type, double value);

}  // namespace gemmd

#endif  // GEMMD_CORE_EXEC_CPU_NUMBERS_H_
