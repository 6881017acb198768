// What    Rows of codes as a dense bit stream: the packing of StandardTensor::codes.
// Shapes  Code i of a row is at bits [i*bits, (i+1)*bits), LSB first, crossing little-endian 32-bit
//         words; a row takes ceil(count * bits / 32) words and its spare bits are 0.
// Threads Pure functions.
#ifndef GEMMD_CORE_QUANT_BIT_ROW_H_
#define GEMMD_CORE_QUANT_BIT_ROW_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace gemmd {

// Bytes of a row of `count` codes of `bits` bits.
constexpr int64_t BitRowBytes(int64_t count, int bits) { return (count * bits + 31) / 32 * 4; }

// Reads codes.size() codes of 1 to 8 bits from `row`. `row` may be unaligned.
void UnpackBitRow(const std::byte* row, int bits, absl::Span<uint8_t> codes);

// Writes the row of `codes` (1 to 8 bits each; higher bits must be 0) to `row`, BitRowBytes long.
void PackBitRow(absl::Span<const uint8_t> codes, int bits, std::byte* row);

}  // namespace gemmd

#endif  // GEMMD_CORE_QUANT_BIT_ROW_H_
