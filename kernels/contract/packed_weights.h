// What    PackedLayout: byte layout of weights for kernels that decode them in registers and feed
//         them to wgmma as its register operand (device/gemm_sm90.cuh).
// Shapes  Columns of K come in chunks of 128, rows of N in units of 64. A unit of a chunk is
//           scales       [sets][32 pairs][2]     16 or 32 bits; none when scales are per row
//           zero points  [sets][32 pairs][2]     1 byte; none when the weights have none
//           codes        [slabs of 64 columns][128 threads][4 words]
//         units of one chunk follow each other, then the next chunk. The last chunk keeps only the
//         slabs that K reaches. A set holds one scale per row for scale_step columns of the chunk;
//         pair p and half h stand for row 16 (p / 8) + p % 8 + 8 h of the unit. Word s of thread t
//         holds 8 codes of 4 bits of the columns 16 s to 16 s + 15 of its slab: nibble i of half h
//         is row 16 (t / 32) + t % 32 / 4 + 8 (i % 2), column 2 (t % 4) + h + 8 (i / 2). That is
//         the order of wgmma's fragment A, and one shift and one mask give two neighbours.
// Keys    Padding rows, columns and scales are 0.
#ifndef GEMMD_KERNELS_CONTRACT_PACKED_WEIGHTS_H_
#define GEMMD_KERNELS_CONTRACT_PACKED_WEIGHTS_H_

#include <cstdint>

namespace gemmd {

struct PackedLayout {
  static constexpr int kChunkColumns = 128;
  static constexpr int kSlabColumns = 64;
  static constexpr int kUnitRows = 64;
  static constexpr int kSlabBytes = kUnitRows * kSlabColumns / 2;
  static constexpr int kSlabsPerChunk = kChunkColumns / kSlabColumns;

  int scale_bytes = 0;             // 0, 2 or 4
  int scale_step = kChunkColumns;  // columns a set of scales is for: 16, 32, 64 or 128
  bool has_zero_points = false;

  constexpr int sets() const { return kChunkColumns / scale_step; }
  constexpr int zero_point_offset() const { return kUnitRows * sets() * scale_bytes; }
  constexpr int code_offset() const {
    return kUnitRows * sets() * (scale_bytes + (has_zero_points ? 1 : 0));
  }
  constexpr int UnitBytes(int slabs) const { return code_offset() + slabs * kSlabBytes; }

  static constexpr int64_t Units(int64_t n) { return (n + kUnitRows - 1) / kUnitRows; }
  static constexpr int64_t Chunks(int64_t k) { return (k + kChunkColumns - 1) / kChunkColumns; }
  static constexpr int SlabsOf(int64_t chunk, int64_t k) {
    const int64_t left = (k - chunk * kChunkColumns + kSlabColumns - 1) / kSlabColumns;
    return left < kSlabsPerChunk ? static_cast<int>(left) : kSlabsPerChunk;
  }
  constexpr int64_t UnitOffset(int64_t chunk, int64_t unit, int64_t n, int64_t k) const {
    return chunk * Units(n) * UnitBytes(kSlabsPerChunk) + unit * UnitBytes(SlabsOf(chunk, k));
  }
  constexpr int64_t Bytes(int64_t n, int64_t k) const {
    return UnitOffset(Chunks(k) - 1, Units(n), n, k);
  }

  // Index of a row's scale or zero point in its set.
  static constexpr int PairIndex(int row) { return (row / 16 * 8 + row % 8) * 2 + row % 16 / 8; }

  struct CodePlace {
    int word;   // of the unit's codes
    int shift;  // bits
  };
  static constexpr CodePlace PlaceOf(int row, int column) {
    const int slab = column / kSlabColumns;
    const int step = column % kSlabColumns / 16;
    const int k = column % 16;
    const int thread = row / 16 * 32 + row % 8 * 4 + k % 8 / 2;
    const int nibble = row % 16 / 8 + 2 * (k / 8);
    return {(slab * 128 + thread) * 4 + step, 4 * nibble + 16 * (k % 2)};
  }
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_CONTRACT_PACKED_WEIGHTS_H_
