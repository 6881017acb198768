// What    Elements of a request's matrices: load to float32 (exact), store rounded once.
// Errors  Stores exist for float32, float16 and bfloat16 outputs only; the host refuses others.
// Sync    None.
// Source  Round to nearest, ties to even; overflow gives infinity, a NaN stays a NaN (IEEE 754).
#ifndef GEMMD_KERNELS_DEVICE_ELEMENT_CUH_
#define GEMMD_KERNELS_DEVICE_ELEMENT_CUH_

#include "kernels/contract/element_type.h"
#include "kernels/device/decode_number.cuh"

namespace gemmd::device {

// float32, float16 or bfloat16 only: less code where 8-bit elements cannot come.
__host__ __device__ inline float LoadWideElement(ElementType type, const void* base,
                                                 int64_t index) {
  if (type == ElementType::kFloat32) return LoadNumber<kFloat32>(base, index);
  return type == ElementType::kFloat16 ? LoadNumber<kFloat16>(base, index)
                                       : LoadNumber<kBFloat16>(base, index);
}

__host__ __device__ inline float LoadElement(ElementType type, const void* base, int64_t index) {
  switch (type) {
    case ElementType::kFloat8E4M3:
      return LoadNumber<kFloat8E4M3>(base, index);
    case ElementType::kFloat8E5M2:
      return LoadNumber<kFloat8E5M2>(base, index);
    case ElementType::kInt8:
      return static_cast<float>(static_cast<const int8_t*>(base)[index]);
    default:
      return LoadWideElement(type, base, index);
  }
}

__host__ __device__ inline uint16_t RoundToBFloat16(float value) {
  const uint32_t bits = BitsOf(value);
  if ((bits & ~kFloatSign) > kFloatInfinity) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

__host__ __device__ inline uint16_t RoundToFloat16(float value) {
  const uint32_t bits = BitsOf(value);
  const uint16_t sign = static_cast<uint16_t>((bits & kFloatSign) >> 16);
  const uint32_t magnitude = bits & ~kFloatSign;
  if (magnitude > kFloatInfinity) return sign | 0x7e00u;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 0.5 makes float32's own rounding drop what float16 subnormals cannot
    // hold.
    const float shifted = FloatOf(magnitude) + 0.5f;
    return sign | static_cast<uint16_t>(BitsOf(shifted) - BitsOf(0.5f));
  }
  const uint32_t rebased = magnitude - (112u << 23);
  return sign | static_cast<uint16_t>((rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13);
}

__host__ __device__ inline void StoreElement(ElementType type, void* base, int64_t index,
                                             float value) {
  switch (type) {
    case ElementType::kFloat16:
      static_cast<uint16_t*>(base)[index] = RoundToFloat16(value);
      return;
    case ElementType::kBFloat16:
      static_cast<uint16_t*>(base)[index] = RoundToBFloat16(value);
      return;
    default:
      static_cast<float*>(base)[index] = value;
  }
}

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_ELEMENT_CUH_
