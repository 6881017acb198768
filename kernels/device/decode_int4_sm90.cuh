// What    One packed word (8 codes of 4 bits, contract/packed_weights.h) -> four registers of
//         wgmma's fragment A: code - zero point, exact in bfloat16 and float16.
// Shapes  offsets: kMagic + zero point, twice in one register, for the thread's two rows.
// Sync    None: registers only.
// Source  An exponent pattern whose last mantissa bit is worth 1 turns an OR into an addition:
//         0x4300 is 128 in bfloat16, 0x6400 is 1024 in float16.
#ifndef GEMMD_KERNELS_DEVICE_DECODE_INT4_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_DECODE_INT4_SM90_CUH_

#include "kernels/contract/element_type.h"
#include "kernels/device/portable.cuh"
#include "kernels/device/ptx/select_or.cuh"
#include "kernels/device/ptx/subtract_pairs.cuh"

namespace gemmd::device {

template <ElementType kType>
struct DecodeInt4Sm90 {
  static constexpr uint32_t kMagic = kType == ElementType::kBFloat16 ? 0x43004300u : 0x64006400u;

  __host__ __device__ static uint32_t Offset(uint32_t zero_point) {
    return kMagic + zero_point * 0x00010001u;
  }

  // kMagic + code for nibble `i` of both halves of `word`.
  __host__ __device__ static uint32_t Raised(uint32_t word, int i) {
    return ptx::SelectOr<0x000f000fu, kMagic>(word >> (4 * i));
  }

  __device__ static void Decode(uint32_t word, const uint32_t (&offsets)[2], uint32_t (&a)[4]) {
    GEMMD_UNROLL
    for (int i = 0; i < 4; ++i) a[i] = ptx::SubtractPairs<kType>(Raised(word, i), offsets[i % 2]);
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_DECODE_INT4_SM90_CUH_
