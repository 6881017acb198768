// What    Hadamard transform of blocks of kHadamardBlock columns, in float32: h -> H h / sqrt(block) with
//         H[i, j] = (-1)^(number of ones in i & j). Butterflies over columns 1, 2, 4, ... apart: first
//         within a thread's piece, then between threads.
// Shapes  A block is a power of two of at most kThreads * kWidth columns and divides K.
// Sync    None: registers only. The partner's piece is the caller's to fetch.
#ifndef GEMMD_KERNELS_DEVICE_QUANTIZE_X_HADAMARD_CUH_
#define GEMMD_KERNELS_DEVICE_QUANTIZE_X_HADAMARD_CUH_

#include "kernels/device/decode_number.cuh"
#include "kernels/device/quantize_x_tile.cuh"

namespace gemmd::device {

template <class Config>
struct HadamardTransform {
  static constexpr int kBlock = Config::kHadamardBlock;  // 0: no transform
  static constexpr int kWidth = QuantizeTile<Config>::kWidth;
  // Threads that share a block.
  static constexpr int kThreads = kBlock <= kWidth ? 1 : kBlock / kWidth;
  static_assert((kBlock & (kBlock - 1)) == 0, "blocks are powers of two");
  static_assert(kThreads <= Config::kThreads, "a block of threads holds whole blocks of columns");

  __host__ __device__ static void InThread(float (&piece)[kWidth]) {
    GEMMD_UNROLL
    for (int apart = 1; apart < Min(kBlock, kWidth); apart *= 2) {
      GEMMD_UNROLL
      for (int i = 0; i < kWidth; ++i) {
        if ((i & apart) != 0) continue;
        const float low = piece[i];
        const float high = piece[i + apart];
        piece[i] = low + high;
        piece[i + apart] = low - high;
      }
    }
  }

  // One element of the threads `apart` and its partner's.
  __host__ __device__ static float Across(float mine, float partner, bool is_upper) {
    return is_upper ? partner - mine : mine + partner;
  }

  __host__ __device__ static void Normalise(float (&piece)[kWidth]) {
    GEMMD_UNROLL
    for (int i = 0; i < kWidth; ++i) piece[i] *= Factor();
  }

  __host__ __device__ static constexpr float Factor() {
    int log2 = 0;
    while ((1 << log2) < kBlock) ++log2;
    return (log2 % 2 == 0 ? 1.0f : 0.70710678118654752440f) * PowerOfHalf(log2 / 2);
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_QUANTIZE_X_HADAMARD_CUH_
