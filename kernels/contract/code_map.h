// What    CodeMap: what packing makes of the codes of integers (quant_spec.h), so that decoding them takes fewer
//         instructions.
//           kTwosComplement  code less half of all codes, as the matrix unit's integers are
//           kOnesComplement  that number's sign in the lowest bit, above it its other bits, those of negative numbers
//                            flipped: for number n its upper bits are n, or -n - 1
// Who     Packing, the decode parts of device/, and the generic kernel, which maps codes back.
#ifndef GEMMD_KERNELS_CONTRACT_CODE_MAP_H_
#define GEMMD_KERNELS_CONTRACT_CODE_MAP_H_

#include <cstdint>

#include "kernels/contract/sm90_operand.h"

namespace gemmd {

enum class CodeMap : uint8_t { kNone, kTwosComplement, kOnesComplement };

constexpr CodeMap CodeMapOf(const Sm90Operand& operand, bool has_zero_points) {
  if (operand.is_top_aligned(has_zero_points)) return CodeMap::kTwosComplement;
  return operand.has_signs_lowest() ? CodeMap::kOnesComplement : CodeMap::kNone;
}

constexpr uint32_t MapCode(CodeMap map, int bits, uint32_t code) {
  const uint32_t half = 1u << (bits - 1);
  if (map == CodeMap::kNone) return code;
  if (map == CodeMap::kTwosComplement) return code ^ half;
  return code >= half ? (code - half) << 1 : (half - 1 - code) << 1 | 1;
}

// The code that MapCode made `mapped` of.
constexpr uint32_t UnmapCode(CodeMap map, int bits, uint32_t mapped) {
  const uint32_t half = 1u << (bits - 1);
  if (map == CodeMap::kNone) return mapped;
  if (map == CodeMap::kTwosComplement) return mapped ^ half;
  return (mapped & 1) == 0 ? half + (mapped >> 1) : half - 1 - (mapped >> 1);
}

}  // namespace gemmd

#endif  // GEMMD_KERNELS_CONTRACT_CODE_MAP_H_
