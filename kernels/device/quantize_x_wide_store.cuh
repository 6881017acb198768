// What    One piece of h -> elements of 16 or 32 bits, rounded once to nearest even; beyond the largest one
//         infinite. A NaN stays one.
// Memory  Elements of a whole piece leave in stores of 16 bytes, others one by one; nothing past K is written.
// Sync    None.
#ifndef GEMMD_KERNELS_DEVICE_QUANTIZE_X_WIDE_STORE_CUH_
#define GEMMD_KERNELS_DEVICE_QUANTIZE_X_WIDE_STORE_CUH_

#include "kernels/device/element.cuh"
#include "kernels/device/quantize_x_tile.cuh"

#ifdef __CUDACC__
#include "kernels/device/ptx/narrow_bfloat16.cuh"
#include "kernels/device/ptx/narrow_float16.cuh"
#endif

namespace gemmd::device {

// Two elements in one register, the first in its low half.
template <ElementType kType>
__host__ __device__ uint32_t RoundPair(float first, float second) {
  constexpr bool kIsFloat16 = kType == ElementType::kFloat16;
  static_assert(kIsFloat16 || kType == ElementType::kBFloat16, "two elements fill a register");
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return kIsFloat16 ? ptx::NarrowFloat16(first, second) : ptx::NarrowBFloat16(first, second);
#else
  const uint32_t low = kIsFloat16 ? RoundToFloat16(first) : RoundToBFloat16(first);
  const uint32_t high = kIsFloat16 ? RoundToFloat16(second) : RoundToBFloat16(second);
  return low | high << 16;
#endif
}

template <class Config>
struct QuantizeWideStore {
  using Tile = QuantizeTile<Config>;
  static constexpr ElementType kType = Config::kCodeType;
  static constexpr int kWidth = Tile::kWidth;
  static constexpr int kPerWord = 4 / ElementBytes(kType);
  static constexpr int kWords = kWidth / kPerWord;
  static_assert(kPerWord <= 2, "without quantization there are no codes of 8 bits");
  static_assert(kWords % 4 == 0, "pieces are stored 16 bytes at a time");

  // `column`: of the slice.
  __host__ __device__ static void Piece(const QuantizeArgs& args, const Tile& tile, int32_t column,
                                        const float (&piece)[kWidth]) {
    const int64_t index = tile.row * args.codes_row_stride + tile.first + column;
    const int32_t count = tile.columns - column;
    if (count >= kWidth) {
      StoreWhole(static_cast<char*>(args.codes) + index * ElementBytes(kType), piece);
      return;
    }
    GEMMD_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      if (i < count) StoreElement(kType, args.codes, index + i, piece[i]);
    }
  }

 private:
  __host__ __device__ static void StoreWhole(char* to, const float (&piece)[kWidth]) {
    GEMMD_UNROLL
    for (int i = 0; i < kWords; i += 4) {
      *reinterpret_cast<uint4*>(to + 4 * i) = {Word(piece, i), Word(piece, i + 1),
                                               Word(piece, i + 2), Word(piece, i + 3)};
    }
  }

  __host__ __device__ static uint32_t Word(const float (&piece)[kWidth], int word) {
    if constexpr (kPerWord == 1) {
      return BitsOf(piece[word]);
    } else {
      return RoundPair<kType>(piece[2 * word], piece[2 * word + 1]);
    }
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_QUANTIZE_X_WIDE_STORE_CUH_
