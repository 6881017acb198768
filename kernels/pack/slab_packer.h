// What    Codes of one slab of a unit (contract/packed_weights.h): 64 rows of dense bit rows -> the planes in
//         which the threads of a warpgroup hold them, or the tile of codes that need no decoding.
// How     A row is spread to bytes, four at a time, into the order of the fragment: 128 threads for each
//         element of each register. The planes are then cut out of all threads' bytes eight at a time.
// Threads A SlabPacker is immutable; SlabCodes belong to one thread.
#ifndef GEMMD_KERNELS_PACK_SLAB_PACKER_H_
#define GEMMD_KERNELS_PACK_SLAB_PACKER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/select/sm90_config.h"

namespace gemmd {

// Codes of a slab, a byte each: [register v][element][thread]; or the tile.
struct SlabCodes {
  static constexpr int kMostBytes = PackedLayout::kUnitRows * PackedLayout::kSlabRowBytes;
  alignas(64) std::array<uint8_t, kMostBytes> bytes{};
};

class SlabPacker {
 public:
  explicit SlabPacker(const Sm90Packing& packing);

  // Sets the codes of row `row` of the unit: the first `columns` (at least 1) from `bits`, where the row's
  // part of the slab begins, the others 0.
  void SetRow(const std::byte* bits, int row, int columns, SlabCodes& codes) const {
    set_row_(*this, bits, row, columns, codes);
  }
  // Whether one of the codes is infinite or no number, and operands have 16 bits.
  bool HasSpecial(const SlabCodes& codes) const;

  // Writes the slab, all slab_bytes of it.
  void Write(const SlabCodes& codes, std::byte* slab) const;

 private:
  // A part of every thread's code at `from` (element of SlabCodes): to bits of a byte of its words.
  struct Part {
    int from = 0;
    int right = 0;
    uint8_t mask = 0;
    int left = 0;
  };
  // The parts that one byte of a thread's words of a slab is made of: parts_[begin, end).
  struct ByteParts {
    size_t begin = 0;
    size_t end = 0;
  };
  using ThreadBytes = std::array<uint64_t, PackedLayout::kThreads / 8>;
  using SetRowFunction = void (*)(const SlabPacker&, const std::byte*, int, int, SlabCodes&);

  template <int kBits, int kElements, bool kFlips>
  static void SetRowAs(const SlabPacker& packer, const std::byte* bits, int row, int columns,
                       SlabCodes& codes);
  static void SetTileRow(const SlabPacker& packer, const std::byte* bits, int row, int columns,
                         SlabCodes& codes);
  template <int kElements, bool kFlips>
  static SetRowFunction SetRowOf(int bits);
  static SetRowFunction SetRowOf(const PackedLayout& layout, bool flips);

  void ListParts();
  ThreadBytes Gather(const ByteParts& byte, const SlabCodes& codes) const;

  const PackedLayout layout_;
  const uint32_t flip_;  // in every byte: makes unsigned codes two's complement
  // A code without its sign, plus special_from_, has one of special_bits_ set where it is special. All are
  // for the codes of eight bytes; 0: no code is special.
  uint64_t magnitude_ = 0;
  uint64_t special_from_ = 0;
  uint64_t special_bits_ = 0;
  const SetRowFunction set_row_;
  std::vector<Part> parts_;
  std::vector<ByteParts> bytes_;  // of a thread's words: planes, then words, then bytes
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_PACK_SLAB_PACKER_H_
