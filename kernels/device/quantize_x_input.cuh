// What    One piece of h: fetched from x as it lies in memory, then widened to float32, with what the
//         activation function makes of gate and up. The two steps are apart so that the loads of many
//         pieces are under way at a time. Columns past K are zeros: they change no largest magnitude
//         and no Hadamard block.
// Shapes  x [M, K], or [M, 2K] with a gate: all gates, then all ups, or alternating.
// Memory  16-byte loads where the rows' pieces are aligned, else one load per element.
// Sync    None.
#ifndef GEMMD_KERNELS_DEVICE_QUANTIZE_X_INPUT_CUH_
#define GEMMD_KERNELS_DEVICE_QUANTIZE_X_INPUT_CUH_

#include "kernels/device/element.cuh"
#include "kernels/device/moe_activate.cuh"
#include "kernels/device/quantize_x_tile.cuh"

#ifdef __CUDACC__
#include "kernels/device/ptx/widen_float16.cuh"
#endif

namespace gemmd::device {

template <ElementType kType>
__host__ __device__ float WidenByte(uint32_t code) {
  if constexpr (kType == ElementType::kFloat8E4M3) return NumberDecoder<kFloat8E4M3>::Decode(code);
  if constexpr (kType == ElementType::kFloat8E5M2) return NumberDecoder<kFloat8E5M2>::Decode(code);
  return static_cast<float>(static_cast<int8_t>(code));
}

// A register of elements -> float32, exact.
template <ElementType kType>
__host__ __device__ void WidenWord(uint32_t word, float* out) {
  if constexpr (kType == ElementType::kFloat32) {
    out[0] = FloatOf(word);
  } else if constexpr (kType == ElementType::kBFloat16) {
    out[0] = FloatOf(word << 16);
    out[1] = FloatOf(word & 0xffff0000u);
  } else if constexpr (ElementBytes(kType) == 1) {
    GEMMD_UNROLL
    for (int i = 0; i < 4; ++i) out[i] = WidenByte<kType>(word >> (8 * i) & 0xffu);
  } else {
#ifdef __CUDA_ARCH__
    out[0] = ptx::WidenFloat16(word & 0xffffu);
    out[1] = ptx::WidenFloat16(word >> 16);
#else
    out[0] = NumberDecoder<kFloat16>::Decode(word & 0xffffu);
    out[1] = NumberDecoder<kFloat16>::Decode(word >> 16);
#endif
  }
}

template <class Config>
struct QuantizeInput {
  static constexpr ElementType kType = Config::kXType;
  static constexpr int kWidth = QuantizeTile<Config>::kWidth;
  static constexpr int kPerWord = kWidth / 4;
  static constexpr int kBits = 8 * ElementBytes(kType);
  static constexpr bool kHasGate = QuantizeTile<Config>::kHasGate;
  static constexpr int kOperands = kHasGate ? 2 : 1;

  // 16 bytes of x, or of gates and of ups. With alternating ones: the first and the second half.
  struct Raw {
    uint32_t words[kOperands][4];
  };

  // Whether every whole piece of `row` starts at a multiple of 16 bytes.
  __host__ __device__ static bool IsAligned(const QuantizeArgs& args, int64_t row) {
    const char* const start = static_cast<const char*>(args.x) + Bytes(row * args.x_row_stride);
    const bool row_is = reinterpret_cast<uintptr_t>(start) % 16 == 0;
    return row_is && (!kHasGate || args.interleaved != 0 || Bytes(args.k) % 16 == 0);
  }

  // Columns [column, column + kWidth) of h.
  __host__ __device__ static Raw Fetch(const QuantizeArgs& args, int64_t row, int32_t column,
                                       bool is_aligned) {
    const int64_t start = row * args.x_row_stride;
    const int64_t count = args.k - column;
    Raw raw;
    if (!kHasGate || args.interleaved == 0) {
      FetchWords(args.x, start + column, count, is_aligned, raw.words[0]);
      if constexpr (kHasGate) {
        FetchWords(args.x, start + args.k + column, count, is_aligned, raw.words[1]);
      }
    } else {
      const int64_t at = start + 2 * static_cast<int64_t>(column);
      GEMMD_UNROLL
      for (int i = 0; i < kOperands; ++i) {
        FetchWords(args.x, at + i * kWidth, 2 * count - i * kWidth, is_aligned, raw.words[i]);
      }
    }
    return raw;
  }

  __host__ __device__ static void Widen(const QuantizeArgs& args, const Raw& raw,
                                        float (&out)[kWidth]) {
    float values[kOperands][kWidth];
    GEMMD_UNROLL
    for (int i = 0; i < kOperands * 4; ++i) {
      WidenWord<kType>(raw.words[i / 4][i % 4], values[i / 4] + i % 4 * kPerWord);
    }
    GEMMD_UNROLL
    for (int i = 0; i < kWidth; ++i) out[i] = Activated(args, values, i);
  }

 private:
  __host__ __device__ static int64_t Bytes(int64_t elements) {
    return elements * ElementBytes(kType);
  }

  __host__ __device__ static float Activated(const QuantizeArgs& args,
                                             const float (&values)[kOperands][kWidth], int i) {
    if constexpr (kHasGate) {
      constexpr MoeActivation kFunction = Config::kActivation == InputActivation::kSwigluClamped
                                              ? MoeActivation::kSwigluClamped
                                              : MoeActivation::kSiluAndMul;
      const GateActivation activation{kFunction, args.has_limit != 0, args.alpha, args.limit};
      const int pair = 2 * i % kWidth;
      const int half = 2 * i / kWidth;
      return args.interleaved != 0 ? activation.Gated(values[half][pair], values[half][pair + 1])
                                   : activation.Gated(values[0][i], values[1][i]);
    } else if constexpr (Config::kActivation == InputActivation::kReluSquared) {
      return GateActivation::ReluSquared(values[0][i]);
    } else {
      return values[0][i];
    }
  }

  // Elements [index, index + kWidth); those from `count` on are zeros.
  __host__ __device__ static void FetchWords(const void* base, int64_t index, int64_t count,
                                             bool is_aligned, uint32_t (&words)[4]) {
    const bool is_whole = count >= kWidth;
    uint4 vector{0, 0, 0, 0};
    if (is_aligned && is_whole) {
      vector = *reinterpret_cast<const uint4*>(static_cast<const char*>(base) + Bytes(index));
    }
    words[0] = vector.x;
    words[1] = vector.y;
    words[2] = vector.z;
    words[3] = vector.w;
    if (count <= 0 || (is_aligned && is_whole)) return;
    GEMMD_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      if (i < count) words[i / kPerWord] |= Element(base, index + i) << (i % kPerWord * kBits);
    }
  }

  __host__ __device__ static uint32_t Element(const void* base, int64_t index) {
    if constexpr (kBits == 32) return static_cast<const uint32_t*>(base)[index];
    if constexpr (kBits == 8) return static_cast<const uint8_t*>(base)[index];
    return static_cast<const uint16_t*>(base)[index];
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_QUANTIZE_X_INPUT_CUH_
