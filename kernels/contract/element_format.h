// What    The number format of an element of x or y, and its name in replies.
#ifndef GEMMD_KERNELS_CONTRACT_ELEMENT_FORMAT_H_
#define GEMMD_KERNELS_CONTRACT_ELEMENT_FORMAT_H_

#include "kernels/contract/element_type.h"
#include "kernels/contract/number_format.h"

namespace gemmd {

constexpr NumberFormat FormatOf(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return kFloat32;
    case ElementType::kFloat16:
      return kFloat16;
    case ElementType::kBFloat16:
      return kBFloat16;
    case ElementType::kFloat8E4M3:
      return kFloat8E4M3;
    case ElementType::kFloat8E5M2:
      return kFloat8E5M2;
    case ElementType::kInt8:
      break;
  }
  return kInt8;
}

constexpr const char* ElementTypeName(ElementType type) {
  switch (type) {
    case ElementType::kFloat32:
      return "float32";
    case ElementType::kFloat16:
      return "float16";
    case ElementType::kBFloat16:
      return "bfloat16";
    case ElementType::kFloat8E4M3:
      return "float8_e4m3";
    case ElementType::kFloat8E5M2:
      return "float8_e5m2";
    case ElementType::kInt8:
      break;
  }
  return "int8";
}

}  // namespace gemmd

#endif  // GEMMD_KERNELS_CONTRACT_ELEMENT_FORMAT_H_
