// What    ElementType: type of the elements of a request's matrices (activations, outputs, bias).
// Who     Chosen on the host, switched on in the kernels: one generic kernel must be ready for
//         whatever type a request brings.
#ifndef GEMMD_KERNELS_CONTRACT_ELEMENT_TYPE_H_
#define GEMMD_KERNELS_CONTRACT_ELEMENT_TYPE_H_

#include <cstdint>

namespace gemmd {

enum class ElementType : uint32_t {
  kFloat32,
  kFloat16,
  kBFloat16,
  kFloat8E4M3,
  kFloat8E5M2,
  kInt8,  // two's complement
};

constexpr int ElementBytes(ElementType type) {
  return type == ElementType::kFloat32                                     ? 4
         : type == ElementType::kFloat16 || type == ElementType::kBFloat16 ? 2
                                                                           : 1;
}

}  // namespace gemmd

#endif  // GEMMD_KERNELS_CONTRACT_ELEMENT_TYPE_H_
