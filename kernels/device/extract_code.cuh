// What    One code of 1 to 32 bits out of a row of 32-bit words; it may straddle two words.
// Shapes  Code i of a row is at bits [i * kBits, (i + 1) * kBits), LSB first.
// Sync    None: Extract touches registers only, Load reads one or two words of its row and no
// others.
#ifndef GEMMD_KERNELS_DEVICE_EXTRACT_CODE_CUH_
#define GEMMD_KERNELS_DEVICE_EXTRACT_CODE_CUH_

#include "kernels/device/portable.cuh"

namespace gemmd::device {

template <int kBits>
struct CodeReader {
  static_assert(kBits >= 1 && kBits <= 32, "a code has 1 to 32 bits");
  static constexpr bool kStraddles = 32 % kBits != 0;

  // `shift` is the code's first bit in `low`, below 32. `high` is the next word; only its bits that
  // belong to the code matter.
  __host__ __device__ static uint32_t Extract(uint32_t low, uint32_t high, int shift) {
    const uint64_t window = (static_cast<uint64_t>(high) << 32) | low;
    return static_cast<uint32_t>(window >> shift) & LowBits(kBits);
  }

  __host__ __device__ static uint32_t Load(const uint32_t* row, int64_t index) {
    const int64_t first_bit = index * kBits;
    const uint32_t* word = row + first_bit / 32;
    const int shift = static_cast<int>(first_bit % 32);
    const bool straddles = kStraddles && shift + kBits > 32;
    return Extract(word[0], straddles ? word[1] : 0u, shift);
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_EXTRACT_CODE_CUH_
