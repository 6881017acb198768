// What    PackedLayout: byte layout of weights for kernels that decode them in registers and feed
//         them to wgmma as its register operand (device/gemm_sm90.cuh).
// Shapes  A slab is the columns of 128 bytes of a row of x: 64 of 16 bits or 128 of 8 bits. K comes
//         in chunks of 2 slabs, rows of N in units of 64. A unit of a chunk is
//           scales       [sets][32 pairs][2]     8, 16 or 32 bits; none when scales are per row
//           zero points  [sets][32 pairs][2]     1 byte; or float32, -zero point * scale (scales are
//                                                float32 then); none when the weights have none
//           codes        [slabs][planes][...]
//         units of one chunk follow each other, then the next chunk. The last chunk keeps only the
//         slabs that K reaches. A set holds one scale per row for scale_step columns of the chunk;
//         pair p and half h stand for row 16 (p / 8) + p % 8 + 8 h of the unit.
//         A thread of the warpgroup holds 16 registers of a slab, v = 4 step + i, each of 2 or 4
//         elements: wgmma's fragment A. The bits of a code are cut into planes of 16, 8, 4, 2 and 1
//         bits, lowest bits first (6 = 4 + 2). A plane is [vectors][128 threads][up to 4 words]; a
//         word holds lanes of lane_bits, a lane lane_bits / plane codes. Lanes are the elements of
//         one register, or with lanes of 4 bits those of two registers. With signs apart the upper
//         bits of the lanes hold the signs of other lanes: those of the first register's elements
//         are the upper bits of the word's bytes, those of the second's lie 4 bits below.
//         Codes of 3 bits for 16-bit operands lie in the words of their planes (2 and 1) otherwise: five
//         in each lane of a word, and the bits of register 15's in the upper bits of the three words'
//         lanes, so that one shift and one mask get most of them.
//         Codes of e2m1 for 16-bit operands (signs apart, lanes of 16 bits) lie in the words of their plane otherwise: so
//         that the word, turned for each register by its own number of bits, has sign and magnitude of both its
//         elements where bfloat16 has them. BitOfSpread says where.
//         Codes of operand_bits need no decoding. Their slab is a tile of 64 rows of 128 bytes that
//         wgmma can read from shared memory as it is: TileOffset.
// Keys    Padding rows, columns and scales are 0.
#ifndef GEMMD_KERNELS_CONTRACT_PACKED_WEIGHTS_H_
#define GEMMD_KERNELS_CONTRACT_PACKED_WEIGHTS_H_

#include <cstdint>

namespace gemmd {

struct PackedLayout {
  static constexpr int kUnitRows = 64;
  static constexpr int kSlabRowBytes = 128;  // of x
  static constexpr int kSlabsPerChunk = 2;
  static constexpr int kStepsPerSlab = 4;               // matrix instructions
  static constexpr int kRegisters = 4 * kStepsPerSlab;  // of a thread and slab
  static constexpr int kThreads = 128;
  static constexpr int kTileAlignment = 1024;

  int code_bits = 4;
  int operand_bits = 16;  // 16 or 8: elements of x and decoded weights
  int lane_bits = 16;     // operand_bits, or 4
  bool has_signs_apart = false;
  int slabs = kSlabsPerChunk;  // of a chunk
  int scale_bytes = 0;   // 0, 1, 2 or 4
  int scale_step = 128;  // columns a set of scales is for: a power of two, at most a chunk
  int zero_point_bytes = 0;  // 0, 1 or 4
  bool begins_with_codes = false;  // in a stage: tiles lie at multiples of kTileAlignment

  constexpr int slab_columns() const { return kSlabRowBytes * 8 / operand_bits; }
  constexpr int chunk_columns() const { return slabs * slab_columns(); }
  constexpr int step_columns() const { return slab_columns() / kStepsPerSlab; }
  constexpr int slab_bytes() const { return kUnitRows * slab_columns() * code_bits / 8; }

  constexpr bool is_direct() const { return code_bits == operand_bits; }
  constexpr int sets() const { return chunk_columns() / scale_step; }
  constexpr bool has_zero_points() const { return zero_point_bytes != 0; }
  constexpr int set_bytes() const { return kUnitRows * (scale_bytes + zero_point_bytes); }
  constexpr int scale_offset() const { return begins_with_codes ? slabs * slab_bytes() : 0; }
  constexpr int zero_point_offset() const {
    return scale_offset() + kUnitRows * sets() * scale_bytes;
  }
  constexpr int code_offset() const { return begins_with_codes ? 0 : sets() * set_bytes(); }
  constexpr int UnitBytes(int slabs) const {
    const int bytes = sets() * set_bytes() + slabs * slab_bytes();
    return begins_with_codes ? (bytes + kTileAlignment - 1) / kTileAlignment * kTileAlignment
                             : bytes;
  }
  constexpr int whole_unit_bytes() const { return UnitBytes(slabs); }

  static constexpr int64_t Units(int64_t n) { return (n + kUnitRows - 1) / kUnitRows; }
  constexpr int64_t Chunks(int64_t k) const { return (k + chunk_columns() - 1) / chunk_columns(); }
  constexpr int SlabsOf(int64_t chunk, int64_t k) const {
    const int64_t left = (k - chunk * chunk_columns() + slab_columns() - 1) / slab_columns();
    return left < slabs ? static_cast<int>(left) : slabs;
  }
  constexpr int64_t UnitOffset(int64_t chunk, int64_t unit, int64_t n, int64_t k) const {
    return chunk * Units(n) * whole_unit_bytes() + unit * UnitBytes(SlabsOf(chunk, k));
  }
  constexpr int64_t Bytes(int64_t n, int64_t k) const {
    return UnitOffset(Chunks(k) - 1, Units(n), n, k);
  }

  // A unit of one slab of a chunk, as kernels with stages of one slab hold it.
  constexpr PackedLayout OneSlab() const {
    PackedLayout unit = *this;
    unit.slabs = 1;
    unit.begins_with_codes = is_direct();
    if (unit.scale_step > slab_columns()) unit.scale_step = slab_columns();
    return unit;
  }

  // Index of a row's scale or zero point in its set.
  static constexpr int PairIndex(int row) { return (row / 16 * 8 + row % 8) * 2 + row % 16 / 8; }

  struct Plane {
    int bits;       // of every code
    int first_bit;  // of the code
    int offset;     // words before the plane in its slab
  };
  // The plane that begins with bit `first_bit` of the codes.
  constexpr Plane PlaneAt(int first_bit) const {
    int bits = 16;
    while (bits > code_bits - first_bit) bits /= 2;
    return {bits, first_bit, WordsOfThread(first_bit) * kThreads};
  }
  // Words of 32 bits that `bits` bits of a thread's codes of a slab take.
  constexpr int WordsOfThread(int bits) const { return bits * 16 / operand_bits; }

  // Where registers' lanes lie: word of the thread's in the plane, and shift of lane 0.
  struct LanePlace {
    int word;
    int shift;
  };
  constexpr LanePlace LanesIn(const Plane& plane, int group) const {
    const int per_word = lane_bits / plane.bits;
    return {group / per_word, group % per_word * plane.bits};
  }
  // Codes of 3 bits that are not cut into planes: word of the thread's and shift in the lane of bit `bit` of
  // the code in register `v`.
  constexpr bool has_whole_threes() const { return code_bits == 3 && lane_bits == 16; }
  static constexpr LanePlace BitOfThree(int v, int bit) {
    constexpr int kPerWord = 5;
    return v < 3 * kPerWord ? LanePlace{v / kPerWord, v % kPerWord * 3 + bit} : LanePlace{bit, 15};
  }

  // Codes of e2m1 that lie in their word as 16-bit floats have them: word of the thread's and bit of the word of bit
  // `bit` of the code in element `element` of register `v`. Registers 3, 7, ... take what the others leave.
  constexpr bool has_spread_floats() const { return has_signs_apart && lane_bits == 16; }
  static constexpr LanePlace BitOfSpread(int v, int element, int bit) {
    constexpr int kBits[4][4] = {{6, 7, 8, 15}, {12, 13, 14, 21}, {0, 1, 2, 9}, {10, 3, 4, 11}};
    return {v / 4, (kBits[v % 4][bit] + 16 * element) % 32};
  }

  // Lanes of one word belong to one group: a register, or two with lanes of 4 bits.
  constexpr int registers_per_group() const { return operand_bits / lane_bits; }

  // Words of a plane are read in vectors of up to 4.
  constexpr int WordIndex(const Plane& plane, int thread, int word) const {
    const int words = WordsOfThread(plane.bits);
    const int vector = words < 4 ? words : 4;
    return plane.offset + (word / vector * kThreads + thread) * vector + word % vector;
  }

  // wgmma's fragment A: element (row of the unit, column of the slab).
  struct FragmentPlace {
    int thread;
    int v;  // register
    int element;
  };
  constexpr FragmentPlace FragmentOf(int row, int column) const {
    const int elements = 32 / operand_bits;
    const int k = column % step_columns();
    const int i = row % 16 / 8 + 2 * (k / (4 * elements));
    return {row / 16 * 32 + row % 8 * 4 + k % (4 * elements) / elements,
            column / step_columns() * 4 + i, k % elements};
  }

  struct CodePlace {
    int word;  // of the slab
    int shift;
  };
  // Bit of a word that holds the sign of one of its 8 lanes, with signs apart.
  static constexpr int SignShift(int lane) { return lane < 4 ? 8 * lane + 7 : 8 * (lane - 4) + 3; }

  // Byte of a tile of codes that need no decoding: wgmma's K-major layout, swizzled over 128 bytes.
  static constexpr int TileOffset(int row, int byte_of_row) {
    return row * kSlabRowBytes + (byte_of_row / 16 ^ row % 8) * 16 + byte_of_row % 16;
  }

  // Place of the bits that `plane` holds of one code.
  constexpr CodePlace PlaceOf(const Plane& plane, int row, int column) const {
    if (is_direct()) {
      const int offset = TileOffset(row, column * operand_bits / 8);
      return {offset / 4, offset % 4 * 8};
    }
    const FragmentPlace at = FragmentOf(row, column);
    const int registers = registers_per_group();
    const int lane = at.v % registers * (32 / operand_bits) + at.element;
    const LanePlace lanes = LanesIn(plane, at.v / registers);
    return {WordIndex(plane, at.thread, lanes.word), lanes.shift + lane * lane_bits};
  }
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_CONTRACT_PACKED_WEIGHTS_H_
