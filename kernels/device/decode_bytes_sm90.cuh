// What    Codes of one slab -> registers of wgmma's fragment A, four 8-bit operands each
//         (contract/sm90_operand.h); exact.
// Shapes  offset: Offset(zero point), of the register's row; int8 with zero points only.
// Sync    None: registers only.
#ifndef GEMMD_KERNELS_DEVICE_DECODE_BYTES_SM90_CUH_
#define GEMMD_KERNELS_DEVICE_DECODE_BYTES_SM90_CUH_

#include "kernels/contract/quant_spec.h"
#include "kernels/contract/sm90_operand.h"
#include "kernels/device/portable.cuh"
#include "kernels/device/ptx/permute_bytes.cuh"
#include "kernels/device/ptx/select_or.cuh"
#include "kernels/device/slab_codes_sm90.cuh"

namespace gemmd::device {

template <class Config>
struct DecodeBytesSm90 {
  static constexpr Sm90Operand Operand() { return {Config::kWeight, Config::kXType}; }
  static constexpr NumberFormat kWeight = Config::kWeight;
  static constexpr bool kHasZeroPoints = Config::kZeroPoint == ZeroPointKind::kInteger;

  __host__ __device__ static uint32_t Offset(uint32_t zero_point) {
    return zero_point * 0x01010101u;
  }

  // The two registers 2 * pair and 2 * pair + 1.
  template <class Codes>
  __host__ __device__ static void DecodeTwo(const Codes& codes, int pair,
                                            const uint32_t (&offsets)[2], uint32_t (&a)[2]) {
    if constexpr (Operand().has_signs_apart()) {
      constexpr uint32_t kTables[2][2] = {{Table(0), Table(1)}, {Table(0), Table(1)}};
      LookUpMagnitudes(codes.Lanes(pair, 0), kTables, a);
    } else if constexpr (Operand().by_table()) {
      LookUp(codes.Lanes(pair, 0), a);
    } else {
      a[0] = Decode(codes, 2 * pair, offsets[0]);
      a[1] = Decode(codes, 2 * pair + 1, offsets[1]);
    }
  }

  // The same with folded scales: `steps` of the two rows.
  template <class Codes>
  __host__ __device__ static void DecodeTwoFolded(const Codes& codes, int pair,
                                                  const uint32_t (&steps)[2], uint32_t (&a)[2]) {
    constexpr uint32_t kLow = FoldedTable(0), kHigh = FoldedTable(1);
    // Entry 0 is zero and stays so.
    const uint32_t tables[2][2] = {{kLow + steps[0] * 0x08080800u, kHigh + steps[0] * 0x08080808u},
                                   {kLow + steps[1] * 0x08080800u, kHigh + steps[1] * 0x08080808u}};
    LookUpMagnitudes(codes.Lanes(pair, 0), tables, a);
  }

 private:
  static constexpr uint32_t FoldedTable(int half) {
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) {
      word |= Sm90Operand::FoldedEntry(static_cast<uint32_t>(4 * half + i)) << (8 * i);
    }
    return word;
  }

  // Eight codes in lanes of 4 bits, signs apart.
  __host__ __device__ static void LookUpMagnitudes(uint32_t lanes, const uint32_t (&tables)[2][2],
                                                   uint32_t (&a)[2]) {
    const uint32_t index = lanes & 0x77777777u;
    a[0] = ptx::PermuteBytes(tables[0][0], tables[0][1], index) | (lanes & 0x80808080u);
    a[1] = ptx::PermuteBytes(tables[1][0], tables[1][1], index >> 16) | (lanes << 4 & 0x80808080u);
  }

  template <class Codes>
  __host__ __device__ static uint32_t Decode(const Codes& codes, int v, uint32_t offset) {
    if constexpr (Operand().is_top_aligned(kHasZeroPoints)) {
      constexpr int kUp = 8 - kWeight.bits;
      return codes.Lanes(v, kUp) & InLanes(LowBits(kWeight.bits) << kUp, 8);
    } else if constexpr (Operand().has_signs_lowest()) {
      // The other bits are twice the magnitude, less 2 where the sign is set: one product adds that and the operand's
      // sign. Sixteen is the first code of the next exponent, so that twice 8 is its number too.
      const uint32_t lanes = codes.Lanes(v, 0);
      constexpr uint32_t kSigns = InLanes(1, 8);
      constexpr uint32_t kOthers = InLanes(LowBits(kWeight.bits) & ~1u, 8);
      return (lanes & kSigns) * (0x80u + 2) + (lanes & kOthers);
    } else if constexpr (Operand().is_int8()) {
      // The upper bit keeps a borrow inside its byte.
      constexpr uint32_t kCode = InLanes(LowBits(kWeight.bits), 8);
      return (ptx::SelectOr<kCode, 0x80808080u>(codes.Lanes(v, 0)) - offset) ^ 0x80808080u;
    } else if constexpr (Operand().is_sign_magnitude()) {
      return (codes.Lanes(v, 0) & InLanes(LowBits(kWeight.bits - 1), 8)) | SignOf(codes, v);
    } else {
      constexpr int kUp = Operand().mantissa_bits() - kWeight.mantissa_bits;
      constexpr uint32_t kMagnitude = InLanes(LowBits(kWeight.bits - 1) << kUp, 8);
      if constexpr (kWeight.bits == 8 && kUp == 0) return codes.Lanes(v, 0);
      return (codes.Lanes(v, kUp) & kMagnitude) | SignOf(codes, v);
    }
  }

  template <class Codes>
  __host__ __device__ static uint32_t SignOf(const Codes& codes, int v) {
    return codes.Lanes(v, 8 - kWeight.bits) & 0x80808080u;
  }

  // Operands of the codes 4 * quarter to 4 * quarter + 3, one a byte.
  static constexpr uint32_t Table(int quarter) {
    uint32_t word = 0;
    for (int i = 0; i < 4; ++i) {
      const auto code = static_cast<uint32_t>(4 * quarter + i);
      if (code < 1u << kWeight.bits) word |= Operand().TableEntry(code) << (8 * i);
    }
    return word;
  }

  // Eight codes in lanes of 4 bits.
  __host__ __device__ static void LookUp(uint32_t lanes, uint32_t (&a)[2]) {
    constexpr int kIndexBits = kWeight.bits < 3 ? kWeight.bits : 3;
    const uint32_t index = lanes & InLanes(LowBits(kIndexBits), 4);
    if constexpr (kWeight.bits < 4) {
      a[0] = LowerEight(index);
      a[1] = LowerEight(index >> 16);
    } else {
      // Nibble i: i of the lower eight entries' byte, i + 4 of the upper eight's.
      const uint32_t half = ptx::SelectOr<0x44444444u, 0x32103210u>(lanes >> 1);
      a[0] = Pick(index, half);
      a[1] = Pick(index >> 16, half >> 16);
    }
  }
  __host__ __device__ static uint32_t Pick(uint32_t index, uint32_t half) {
    constexpr uint32_t kTable2 = Table(2), kTable3 = Table(3);
    return ptx::PermuteBytes(LowerEight(index), ptx::PermuteBytes(kTable2, kTable3, index), half);
  }
  __host__ __device__ static uint32_t LowerEight(uint32_t index) {
    constexpr uint32_t kTable0 = Table(0), kTable1 = Table(1);
    return ptx::PermuteBytes(kTable0, kTable1, index);
  }
};

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_DECODE_BYTES_SM90_CUH_
