// What    Codes in dense rows (contract/quant_spec.h) -> units of packed weights, for every format and
//         layout: they are arguments, so one kernel packs all layers.
// Shapes  contract/pack_args.h. Grid: x = units, each with its chunks; PackArgs::kThreads threads.
// Memory  Every byte of a unit is written; what N and K do not reach is 0.
// Keys    The same codes give the same bytes: parts of codes meet in a word by OR, in whatever order.
// Sync    Block-wide, in PackCodes. The parts below only touch memory that is passed in.
#ifndef GEMMD_KERNELS_DEVICE_PACK_CODES_CUH_
#define GEMMD_KERNELS_DEVICE_PACK_CODES_CUH_

#include "kernels/contract/code_parts.h"
#include "kernels/contract/pack_args.h"
#include "kernels/device/portable.cuh"

namespace gemmd::device {

// Where the parts of the codes of one column of a slab lie, in the rows 16 a + b of a unit, with the same
// b / 8: what takes divisions is computed once.
class PackedColumn {
 public:
  static constexpr int kRows = 8;  // of b

  __host__ __device__ PackedColumn(const PackedLayout& layout, int column, int first_row)
      : layout_(layout), column_(column), first_row_(first_row), count_(CodePartCount(layout)) {
    GEMMD_NO_UNROLL
    for (int i = 0; i < count_; ++i) {
      parts_[i] = CodePartOf(layout, i, first_row, column);
      words_per_row_[i] = CodePartOf(layout, i, first_row + 1, column).word - parts_[i].word;
      words_per_16_[i] = CodePartOf(layout, i, first_row + 16, column).word - parts_[i].word;
    }
  }

  // ORs the parts of the code in row first_row + 16 a + b into the slab: put(word, bits).
  template <typename Put>
  __host__ __device__ void PutCode(int a, int b, uint32_t code, const Put& put) const {
    if (layout_.is_direct()) {  // rows of tiles are swizzled
      const CodePart part = CodePartOf(layout_, 0, first_row_ + 16 * a + b, column_);
      return put(part.word, part.In(code));
    }
    GEMMD_NO_UNROLL
    for (int i = 0; i < count_; ++i) {
      put(parts_[i].word + a * words_per_16_[i] + b * words_per_row_[i], parts_[i].In(code));
    }
  }

 private:
  const PackedLayout& layout_;
  const int column_;
  const int first_row_;
  const int count_;
  CodePart parts_[kMostCodeParts] = {};
  int words_per_row_[kMostCodeParts] = {};
  int words_per_16_[kMostCodeParts] = {};
};

// One unit of one chunk.
struct PackedUnit {
  static constexpr int kMostWords = PackedLayout::kSlabsPerChunk * PackedLayout::kUnitRows *
                                    PackedLayout::kSlabRowBytes / 4;  // of its codes

  const PackArgs& args;
  int64_t block;
  int64_t unit;
  int64_t chunk;
  int slabs;
  int rows;  // that N reaches

  __host__ __device__ static PackedUnit Of(const PackArgs& args, int64_t block) {
    const int64_t chunks = args.layout.Chunks(args.k);
    const int64_t unit = args.first_unit + block / chunks;
    const int64_t left = args.n - unit * PackedLayout::kUnitRows;
    const int rows =
        left < PackedLayout::kUnitRows ? static_cast<int>(left) : PackedLayout::kUnitRows;
    return {args, block, unit, block % chunks, args.layout.SlabsOf(block % chunks, args.k), rows};
  }

  __host__ __device__ int code_words() const { return slabs * args.layout.slab_bytes() / 4; }
  // Columns, each once for the rows with r % 16 < 8 and once for the others.
  __host__ __device__ int slots() const { return 2 * slabs * args.layout.slab_columns(); }

  // Puts the codes of one slot into the unit's words, which are 0 at first.
  template <typename Put>
  __host__ __device__ void PutSlot(int slot, const Put& put) const {
    const int columns = args.layout.slab_columns();
    const int slab = slot / (2 * columns);
    const int column = slot % columns;
    const int first_row = slot / columns % 2 * PackedColumn::kRows;
    const int64_t k = chunk * args.layout.chunk_columns() + slab * columns + column;
    if (k >= args.k) return;
    const PackedColumn place(args.layout, column, first_row);
    const int first_word = slab * (args.layout.slab_bytes() / 4);
    const auto put_word = [&](int word, uint32_t bits) { put(first_word + word, bits); };
    GEMMD_NO_UNROLL
    for (int a = 0; a < PackedLayout::kUnitRows / 16; ++a) {
      const int row = first_row + 16 * a;
      uint32_t codes[PackedColumn::kRows] = {};  // loaded side by side
      GEMMD_UNROLL
      for (int b = 0; b < PackedColumn::kRows; ++b) {
        if (row + b < rows) codes[b] = MappedCode(row + b, k);
      }
      GEMMD_NO_UNROLL  // the compiler's time goes with the code
      for (int b = 0; b < PackedColumn::kRows; ++b) {
        if (row + b < rows) place.PutCode(a, b, codes[b], put_word);
      }
    }
  }

  __host__ __device__ char* destination() const {
    return static_cast<char*>(args.units) + args.layout.UnitOffset(chunk, unit, args.n, args.k);
  }
  __host__ __device__ const char* scales() const {
    return static_cast<const char*>(args.scales) + block * args.scale_unit_bytes();
  }

 private:
  __host__ __device__ uint32_t MappedCode(int row, int64_t k) const {
    return MapCode(args.map, args.layout.code_bits, Code(row, k));
  }
  __host__ __device__ uint32_t Code(int row, int64_t k) const {
    const int64_t row_of_codes = (unit - args.first_unit) * PackedLayout::kUnitRows + row;
    const uint32_t* const words = args.codes + row_of_codes * args.row_words;
    const int64_t bit = k * args.layout.code_bits;
    const int shift = static_cast<int>(bit % 32);
    uint32_t code = words[bit / 32] >> shift;
    if (shift + args.layout.code_bits > 32) code |= words[bit / 32 + 1] << (32 - shift);
    return code & LowBits(args.layout.code_bits);
  }
};

#ifdef __CUDACC__

__global__ void __launch_bounds__(PackArgs::kThreads)
    PackCodes(const __grid_constant__ PackArgs args) {
  __shared__ uint4 vectors[PackedUnit::kMostWords / 4];
  auto* const words = reinterpret_cast<uint32_t*>(vectors);
  const PackedUnit unit = PackedUnit::Of(args, blockIdx.x);
  const int thread = threadIdx.x;
  const int code_vectors = unit.code_words() / 4;
  for (int i = thread; i < code_vectors; i += PackArgs::kThreads) vectors[i] = uint4{};
  __syncthreads();
  for (int slot = thread; slot < unit.slots(); slot += PackArgs::kThreads) {
    unit.PutSlot(slot, [&](int word, uint32_t bits) { atomicOr(words + word, bits); });
  }
  __syncthreads();
  char* const to = unit.destination();
  auto* const codes = reinterpret_cast<uint4*>(to + args.layout.code_offset());
  for (int i = thread; i < code_vectors; i += PackArgs::kThreads) codes[i] = vectors[i];
  const auto* const scales = reinterpret_cast<const uint4*>(unit.scales());
  auto* const packed_scales = reinterpret_cast<uint4*>(to + args.layout.scale_offset());
  const int scale_vectors = static_cast<int>(args.scale_unit_bytes() / 16);
  for (int i = thread; i < scale_vectors; i += PackArgs::kThreads) packed_scales[i] = scales[i];
}

#endif  // __CUDACC__

}  // namespace gemmd::device

#endif  // GEMMD_KERNELS_DEVICE_PACK_CODES_CUH_
