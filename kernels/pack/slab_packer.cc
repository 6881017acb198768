#include "kernels/pack/slab_packer.h"

#include <algorithm>
#include <cstring>

#include "kernels/device/decode_number.cuh"

namespace gemmd {
namespace {

constexpr int kThreads = PackedLayout::kThreads;

constexpr uint32_t InBytes(uint32_t byte) { return byte * 0x01010101u; }

uint64_t Load8(const std::byte* bytes) {
  uint64_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// Four codes of kBits, kStride apart, to the bytes of a word.
template <int kBits, int kStride>
uint32_t Spread4(uint64_t bits) {
  constexpr uint32_t kMask = (1u << kBits) - 1;
  if constexpr (kStride == 8) return static_cast<uint32_t>(bits) & InBytes(kMask);
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i) {
    word |= (static_cast<uint32_t>(bits >> (i * kStride)) & kMask) << (8 * i);
  }
  return word;
}

// Element `e` of the four threads that share a row, of 4 * kElements codes at `bits`.
template <int kBits, int kElements>
uint32_t ElementOfFour(const std::byte* bits, int e) {
  if constexpr (kElements == 2) {
    return Spread4<kBits, 2 * kBits>(Load8(bits) >> (e * kBits));
  } else {
    constexpr uint32_t kMask = (1u << kBits) - 1;
    const uint64_t low = Load8(bits) >> (e * kBits);
    const uint64_t high = Load8(bits + kBits) >> (e * kBits);
    const auto code = [](uint64_t from) { return static_cast<uint32_t>(from) & kMask; };
    return code(low) | code(low >> (4 * kBits)) << 8 | code(high) << 16 |
           code(high >> (4 * kBits)) << 24;
  }
}

constexpr int kVectorBytes = 16;
using ByteVector = uint8_t __attribute__((vector_size(kVectorBytes)));

// Byte by byte from `a` and `b` in turn: their lower halves to merged[0], the upper ones to merged[1].
void MergeBytes(const ByteVector& a, const ByteVector& b, ByteVector* merged) {
  merged[0] = __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  merged[1] =
      __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

// Words [threads][kWords] from their bytes [kWords * 4][threads]: planes of 16 threads at a time are merged
// byte by byte until the bytes of a thread lie side by side.
template <int kWords, typename Bytes>
void StoreWords(const Bytes* bytes, std::byte* to) {
  constexpr int kPlanes = kWords * 4;
  const auto* const from = reinterpret_cast<const std::byte*>(bytes);
  for (int thread = 0; thread < kThreads; thread += kVectorBytes) {
    std::array<ByteVector, kPlanes> planes;
    for (int i = 0; i < kPlanes; ++i) {
      std::memcpy(&planes[i], from + i * kThreads + thread, kVectorBytes);
    }
    for (int merged = 1; merged < kPlanes; merged *= 2) {
      std::array<ByteVector, kPlanes> pairs;
      for (int i = 0; i < kPlanes / 2; ++i) {
        MergeBytes(planes[i], planes[i + kPlanes / 2], &pairs[2 * i]);
      }
      planes = pairs;
    }
    std::memcpy(to + thread * kPlanes, planes.data(), sizeof(planes));
  }
}

}  // namespace

SlabPacker::SlabPacker(const Sm90Packing& packing)
    : layout_(packing.layout),
      flip_(packing.operand.is_top_aligned(packing.layout.has_zero_points)
                ? InBytes(1u << (packing.operand.weight.bits - 1))
                : 0u),
      set_row_(SetRowOf(packing.layout, flip_ != 0)) {
  const NumberFormat& weight = packing.operand.weight;
  if (packing.operand.is_wide() && weight.special != SpecialValues::kNone) {
    const uint32_t first = weight.special == SpecialValues::kIeee
                               ? device::LowBits(weight.exponent_bits) << weight.mantissa_bits
                               : device::LowBits(weight.bits - 1);
    const uint64_t lanes = weight.bits > 8 ? 0x0001000100010001u : 0x0101010101010101u;
    const uint32_t top = weight.bits > 8 ? 0x8000u : 0x80u;
    magnitude_ = device::LowBits(weight.bits - 1) * lanes;
    special_from_ = (top - first) * lanes;
    special_bits_ = top * lanes;
  }
  if (!layout_.is_direct()) ListParts();
}

SlabPacker::SetRowFunction SlabPacker::SetRowOf(const PackedLayout& layout, bool flips) {
  if (layout.is_direct()) return &SetTileRow;
  const int bits = layout.code_bits;
  if (layout.operand_bits == 16) return SetRowOf<2, false>(bits);  // only int8 is two's complement
  return flips ? SetRowOf<4, true>(bits) : SetRowOf<4, false>(bits);
}

template <int kElements, bool kFlips>
SlabPacker::SetRowFunction SlabPacker::SetRowOf(int bits) {
  constexpr SetRowFunction kByBits[] = {
      &SetRowAs<1, kElements, kFlips>, &SetRowAs<2, kElements, kFlips>,
      &SetRowAs<3, kElements, kFlips>, &SetRowAs<4, kElements, kFlips>,
      &SetRowAs<5, kElements, kFlips>, &SetRowAs<6, kElements, kFlips>,
      &SetRowAs<7, kElements, kFlips>, &SetRowAs<8, kElements, kFlips>};
  return kByBits[bits - 1];
}

template <int kBits, int kElements, bool kFlips>
void SlabPacker::SetRowAs(const SlabPacker& packer, const std::byte* bits, int row, int columns,
                          SlabCodes& codes) {
  constexpr int kGroup = 4 * kElements;  // columns of the four threads that share a row
  constexpr int kColumns = PackedLayout::kSlabRowBytes / 2 * (kElements / 2);
  constexpr int kBytes = kColumns * kBits / 8;
  std::byte padded[kBytes + 8];  // groups are read eight bytes at a time
  if (columns == kColumns) {
    std::memcpy(padded, bits, kBytes);
  } else {
    std::memset(padded, 0, sizeof(padded));
    std::memcpy(padded, bits, static_cast<size_t>((columns * kBits + 7) / 8));
  }
  const PackedLayout::FragmentPlace first = packer.layout_.FragmentOf(row, 0);
  const uint32_t flip = kFlips ? packer.flip_ : 0;  // a copy: the bytes written below might be any object's
  uint8_t* const to = codes.bytes.data() + first.v * kElements * kThreads + first.thread;
  for (int group = 0; group < kColumns / kGroup; ++group) {
    const int v = group / 2 * 4 + group % 2 * 2;
    for (int e = 0; e < kElements; ++e) {
      const uint32_t four = ElementOfFour<kBits, kElements>(padded + group * kGroup * kBits / 8, e);
      const uint32_t flipped = four ^ flip;
      std::memcpy(to + (v * kElements + e) * kThreads, &flipped, sizeof(flipped));
    }
  }
  for (int column = columns; column < kColumns; ++column) {
    const PackedLayout::FragmentPlace at = packer.layout_.FragmentOf(row, column);
    codes.bytes[static_cast<size_t>((at.v * kElements + at.element) * kThreads + at.thread)] = 0;
  }
}

void SlabPacker::SetTileRow(const SlabPacker& packer, const std::byte* bits, int row, int columns,
                            SlabCodes& codes) {
  constexpr int kBytes = PackedLayout::kSlabRowBytes;
  constexpr int kVector = 16;  // a row's bytes are swizzled in vectors
  const auto used = static_cast<size_t>(columns * packer.layout_.code_bits / 8);
  std::array<uint32_t, kBytes / 4> words{};
  std::memcpy(words.data(), bits, used);
  for (uint32_t& word : words) word ^= packer.flip_;
  const auto* const bytes = reinterpret_cast<std::byte*>(words.data());
  std::memset(reinterpret_cast<std::byte*>(words.data()) + used, 0, kBytes - used);
  for (int byte = 0; byte < kBytes; byte += kVector) {
    std::memcpy(&codes.bytes[static_cast<size_t>(PackedLayout::TileOffset(row, byte))], bytes + byte,
                kVector);
  }
}

bool SlabPacker::HasSpecial(const SlabCodes& codes) const {
  if (special_bits_ == 0) return false;
  uint64_t special = 0;
  for (size_t at = 0; at < codes.bytes.size(); at += sizeof(uint64_t)) {
    uint64_t eight;
    std::memcpy(&eight, codes.bytes.data() + at, sizeof(eight));
    special |= (eight & magnitude_) + special_from_;
  }
  return (special & special_bits_) != 0;
}

// Of thread 0, which is as good as any: the parts of a code are at the same bits of all threads' words.
void SlabPacker::ListParts() {
  const int elements = 32 / layout_.operand_bits;
  std::vector<std::vector<Part>> parts_of_byte(static_cast<size_t>(layout_.slab_bytes() / kThreads));
  const auto add = [&parts_of_byte](int word, int shift, Part part) {
    part.left = shift % 8;
    parts_of_byte[static_cast<size_t>(word * 4 + shift / 8)].push_back(part);
  };
  for (int from = 0; from < PackedLayout::kRegisters * elements; ++from) {
    const int v = from / elements;
    const int lane = v % layout_.registers_per_group() * elements + from % elements;
    if (layout_.has_whole_threes()) {
      for (int bit = 0; bit < layout_.code_bits; ++bit) {
        const PackedLayout::LanePlace at = PackedLayout::BitOfThree(v, bit);
        add(at.word, at.shift + lane * layout_.lane_bits, {from, bit, 1, 0});
      }
      continue;
    }
    for (int bit = 0; bit < layout_.code_bits;) {
      const PackedLayout::Plane plane = layout_.PlaneAt(bit);
      const PackedLayout::LanePlace at = layout_.LanesIn(plane, v / layout_.registers_per_group());
      const int word = layout_.WordsOfThread(plane.first_bit) + at.word;
      const int shift = at.shift + lane * layout_.lane_bits;
      if (layout_.has_signs_apart) {
        add(word, shift, {from, 0, 7, 0});
        add(word, PackedLayout::SignShift(shift / layout_.lane_bits), {from, 3, 1, 0});
      } else {
        add(word, shift, {from, bit, static_cast<uint8_t>(device::LowBits(plane.bits)), 0});
      }
      bit += plane.bits;
    }
  }
  for (const std::vector<Part>& parts : parts_of_byte) {
    bytes_.push_back({parts_.size(), parts_.size() + parts.size()});
    parts_.insert(parts_.end(), parts.begin(), parts.end());
  }
}

// One byte of all threads' words.
SlabPacker::ThreadBytes SlabPacker::Gather(const ByteParts& byte, const SlabCodes& codes) const {
  ThreadBytes gathered{};
  for (size_t i = byte.begin; i < byte.end; ++i) {
    const Part& part = parts_[i];
    ThreadBytes from;
    std::memcpy(&from, &codes.bytes[static_cast<size_t>(part.from * kThreads)], sizeof(from));
    const uint64_t mask = part.mask * uint64_t{0x0101010101010101};
    for (size_t j = 0; j < from.size(); ++j) {
      gathered[j] |= (from[j] >> part.right & mask) << part.left;
    }
  }
  return gathered;
}

void SlabPacker::Write(const SlabCodes& codes, std::byte* slab) const {
  if (layout_.is_direct()) {
    std::memcpy(slab, codes.bytes.data(), static_cast<size_t>(layout_.slab_bytes()));
    return;
  }
  for (int bit = 0; bit < layout_.code_bits;) {
    const PackedLayout::Plane plane = layout_.PlaneAt(bit);
    const int words = layout_.WordsOfThread(plane.bits);
    const int vector = std::min(words, 4);
    const int first = layout_.WordsOfThread(bit);
    for (int word = 0; word < words; word += vector) {
      ThreadBytes bytes[16];
      for (int i = 0; i < vector * 4; ++i) {
        bytes[i] = Gather(bytes_[static_cast<size_t>((first + word) * 4 + i)], codes);
      }
      std::byte* const to = slab + layout_.WordIndex(plane, 0, word) * 4;
      if (vector == 1) StoreWords<1>(bytes, to);
      if (vector == 2) StoreWords<2>(bytes, to);
      if (vector == 4) StoreWords<4>(bytes, to);
    }
    bit += plane.bits;
  }
}

}  // namespace gemmd
