// What    What lets one part be compiled by nvcc, NVRTC and the host compiler of the CPU tests.
#ifndef GEMMD_KERNELS_DEVICE_PORTABLE_CUH_
#define GEMMD_KERNELS_DEVICE_PORTABLE_CUH_

#include <cstdint>

#ifdef __CUDACC__
#define GEMMD_UNROLL _Pragma("unroll")
#define GEMMD_UNROLL_BY_4 _Pragma("unroll 4")
#define GEMMD_NO_UNROLL _Pragma("unroll 1")
#else
#define GEMMD_UNROLL
#define GEMMD_UNROLL_BY_4
#define GEMMD_NO_UNROLL
#ifndef __host__
#define __host__
#endif
#ifndef __device__
#define __device__
#endif
#endif

namespace gemmd::device {

#ifndef __CUDACC__
// Vector loads of parts that run on the host.
struct uint2 {
  uint32_t x, y;
};
struct uint4 {
  uint32_t x, y, z, w;
};
#endif

__host__ __device__ inline uint32_t BitsOf(float value) {
  return __builtin_bit_cast(uint32_t, value);
}
__host__ __device__ inline float FloatOf(uint32_t bits) { return __builtin_bit_cast(float, bits); }

inline constexpr uint32_t kFloatSign = 0x80000000u;
inline constexpr uint32_t kFloatInfinity = 0x7f800000u;
inline constexpr uint32_t kFloatQuietNan = 0x7fc00000u;

__host__ __device__ constexpr uint32_t LowBits(int bits) {
  return bits >= 32 ? 0xffffffffu : (1u << bits) - 1;
}

template <typename T>
__host__ __device__ constexpr T Min(T a, T b) {
  return a < b ? a : b;
}

template <typename T>
__host__ __device__ constexpr T Max(T a, T b) {
  return a < b ? b : a;
}

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_PORTABLE_CUH_
