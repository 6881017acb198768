// What    h = h * factor of its column (QuantizeArgs::input_scale), in float32 and rounded there once.
// Memory  16-byte loads of whole pieces where the factors are aligned, else one load per element. Columns
//         past K have the factor 1: they stay zeros.
// Sync    None.
#ifndef GEMMD_KERNELS_DEVICE_QUANTIZE_X_FACTORS_CUH_
#define GEMMD_KERNELS_DEVICE_QUANTIZE_X_FACTORS_CUH_

#include "kernels/device/quantize_x_tile.cuh"

namespace gemmd::device {

// The rounded product, also where a sum follows that the compiler would fuse with it.
__host__ __device__ inline float RoundedProduct(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

template <class Config>
struct QuantizeFactors {
  static constexpr int kWidth = QuantizeTile<Config>::kWidth;

  // `row`: all K factors. `piece`: columns [column, column + kWidth) of h.
  __host__ __device__ static void Multiply(const QuantizeArgs& args, const float* row,
                                           int32_t column, float (&piece)[kWidth]) {
    const float* const factors = row + column;
    const int64_t count = args.k - column;
    if (count >= kWidth && reinterpret_cast<uintptr_t>(factors) % 16 == 0) {
      GEMMD_UNROLL
      for (int i = 0; i < kWidth; i += 4) MultiplyFour(factors + i, piece + i);
      return;
    }
    GEMMD_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      if (i < count) piece[i] = RoundedProduct(piece[i], factors[i]);
    }
  }

 private:
  __host__ __device__ static void MultiplyFour(const float* factors, float* piece) {
    const uint4 four = *reinterpret_cast<const uint4*>(factors);
    piece[0] = RoundedProduct(piece[0], FloatOf(four.x));
    piece[1] = RoundedProduct(piece[1], FloatOf(four.y));
    piece[2] = RoundedProduct(piece[2], FloatOf(four.z));
    piece[3] = RoundedProduct(piece[3], FloatOf(four.w));
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_QUANTIZE_X_FACTORS_CUH_
