// What    CodeOrder: how the codes of a layer lie in a GPU's memory, and what that means for one format.
#ifndef GEMMD_KERNELS_CONTRACT_CODE_ORDER_H_
#define GEMMD_KERNELS_CONTRACT_CODE_ORDER_H_

#include <cstdint>

#include "kernels/contract/number_format.h"
#include "kernels/contract/packed_weights.h"
#include "kernels/contract/sm90_operand.h"

namespace gemmd {

enum class CodeOrder : uint8_t {
  kRows,             // dense rows (quant_spec.h)
  kPackedForWide,    // packed_weights.h, for operands of 16 bits
  kPackedForFloat8,  // for 8-bit floats
  kPackedForInt8,
};

constexpr CodeOrder PackedOrderFor(const Sm90Operand& operand) {
  return operand.is_wide()   ? CodeOrder::kPackedForWide
         : operand.is_int8() ? CodeOrder::kPackedForInt8
                             : CodeOrder::kPackedForFloat8;
}

// One of the operands that codes are packed alike for. `order` is not kRows.
constexpr Sm90Operand OperandOf(CodeOrder order, const NumberFormat& weight) {
  return {weight, order == CodeOrder::kPackedForWide   ? ElementType::kBFloat16
                  : order == CodeOrder::kPackedForInt8 ? ElementType::kInt8
                                                       : ElementType::kFloat8E4M3};
}

// What is not about scales and zero points.
constexpr PackedLayout CodeLayoutOf(const Sm90Operand& operand) {
  PackedLayout layout;
  layout.code_bits = operand.weight.bits;
  layout.operand_bits = operand.bits();
  layout.lane_bits = operand.by_table() ? 4 : operand.bits();
  layout.has_signs_apart = operand.has_signs_apart();
  layout.scale_step = layout.chunk_columns();
  return layout;
}

}  // namespace gemmd

#endif  // GEMMD_KERNELS_CONTRACT_CODE_ORDER_H_
