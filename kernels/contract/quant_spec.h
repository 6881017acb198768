// What    QuantSpec: everything that decides what the numbers of one layer mean.
//           w[e,n,k] = (code - zero_point) * scale * secondary_scale
//           y[m,n]   = sum over k of x[m,k] * w[n,k], + bias[n], rounded once to the output type
// Shapes  E experts (1 for a dense layer), N output features, K input features.
//           codes             [E, N, row words]  row words = ceil(K * bits / 32) words of 32 bits;
//           the code
//                                                of column k is at bits [k*bits, (k+1)*bits) of its
//                                                row, LSB first, crossing words; spare bits are 0
//           scales            [E, SN, SK]        SN = ScaleRows(N), SK = ScaleColumns(K); element
//           (n, k) uses
//                                                (n / scale_block_n, group_index ? group_index[e,k]
//                                                : k / scale_block_k)
//           zero points       [E, SN, SK]        int16 (unsigned convention) or float32
//           secondary scales  [E] or [E, N]      float32
//           group_index       [E, K]             int32, in [0, SK)
//           bias              [E, N]
//         Everything is row-major, little-endian, without padding between rows except codes' word
//         padding.
// Who     The same object is the wire format, part of the cache key and the input of the CPU
// reference.
#ifndef GEMMD_KERNELS_CONTRACT_QUANT_SPEC_H_
#define GEMMD_KERNELS_CONTRACT_QUANT_SPEC_H_

#include <cstdint>

#include "kernels/contract/number_format.h"

namespace gemmd {

enum class ZeroPointKind : uint8_t { kNone, kInteger, kFloat };

// Bytes of a zero point among packed weights (packed_weights.h).
constexpr int PackedZeroPointBytes(ZeroPointKind kind) {
  return kind == ZeroPointKind::kFloat ? 4 : kind == ZeroPointKind::kInteger ? 1 : 0;
}
enum class SecondaryScaleKind : uint8_t { kNone, kTensor, kChannel };
enum class ActivationScaleKind : uint8_t { kNone, kStaticTensor, kDynamicToken, kDynamicGroup };

struct QuantSpec {
  NumberFormat weight;
  NumberFormat scale;         // kNoFormat: no scale
  int64_t scale_block_n = 1;  // rows sharing one scale; 0 = all N
  int64_t scale_block_k = 0;  // columns sharing one scale (group size); 0 = all K
  ZeroPointKind zero_point = ZeroPointKind::kNone;
  SecondaryScaleKind secondary_scale = SecondaryScaleKind::kNone;
  bool has_group_index = false;
  NumberFormat bias;        // kNoFormat: no bias
  NumberFormat activation;  // kNoFormat: activations as the request gives them
  ActivationScaleKind activation_scale = ActivationScaleKind::kNone;
  int64_t activation_group = 0;  // columns per activation scale with kDynamicGroup

  friend constexpr bool operator==(const QuantSpec&, const QuantSpec&) = default;

  constexpr int64_t ScaleRows(int64_t n) const { return Blocks(n, scale_block_n); }
  // Number of scale columns. With a group index the caller knows it (the largest index + 1 at
  // least); this is the count for groups of scale_block_k.
  constexpr int64_t ScaleColumns(int64_t k) const { return Blocks(k, scale_block_k); }
  constexpr int64_t RowWords(int64_t k) const { return (k * weight.bits + 31) / 32; }

 private:
  static constexpr int64_t Blocks(int64_t extent, int64_t block) {
    return block == 0 ? 1 : (extent + block - 1) / block;
  }
};

// Facts about a layer that its checkpoint knows and a request needs.
struct LayerShape {
  int64_t experts = 1;
  int64_t n = 0;
  int64_t k = 0;
  friend constexpr bool operator==(const LayerShape&, const LayerShape&) = default;
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_CONTRACT_QUANT_SPEC_H_
