#include "core/quant/bit_row.h"

#include <cstring>

namespace gemmd {
namespace {

uint32_t LoadWord(const std::byte* bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

// Widths that divide 32: no code crosses a word.
template <int kBits>
void UnpackAligned(const std::byte* row, absl::Span<uint8_t> codes) {
  constexpr size_t kPerWord = 32 / kBits;
  constexpr uint32_t kMask = (1u << kBits) - 1;
  size_t i = 0;
  for (; i + kPerWord <= codes.size(); i += kPerWord, row += 4) {
    const uint32_t word = LoadWord(row);
    for (size_t j = 0; j < kPerWord; ++j) codes[i + j] = (word >> (j * kBits)) & kMask;
  }
  if (i == codes.size()) return;
  uint32_t word = LoadWord(row);
  for (; i < codes.size(); ++i, word >>= kBits) codes[i] = word & kMask;
}

void UnpackCrossing(const std::byte* row, int bits, absl::Span<uint8_t> codes) {
  const uint32_t mask = (1u << bits) - 1;
  uint64_t pending = 0;
  int pending_bits = 0;
  for (uint8_t& code : codes) {
    if (pending_bits < bits) {
      pending |= static_cast<uint64_t>(LoadWord(row)) << pending_bits;
      pending_bits += 32;
      row += 4;
    }
    code = pending & mask;
    pending >>= bits;
    pending_bits -= bits;
  }
}

}  // namespace

void UnpackBitRow(const std::byte* row, int bits, absl::Span<uint8_t> codes) {
  switch (bits) {
    case 1:
      return UnpackAligned<1>(row, codes);
    case 2:
      return UnpackAligned<2>(row, codes);
    case 4:
      return UnpackAligned<4>(row, codes);
    case 8:
      std::memcpy(codes.data(), row, codes.size());
      return;
    default:
      return UnpackCrossing(row, bits, codes);
  }
}

void PackBitRow(absl::Span<const uint8_t> codes, int bits, std::byte* row) {
  uint64_t pending = 0;
  int pending_bits = 0;
  const auto flush = [&] {
    const uint32_t word = static_cast<uint32_t>(pending);
    std::memcpy(row, &word, sizeof(word));
    row += sizeof(word);
    pending >>= 32;
    pending_bits -= 32;
  };
  for (const uint8_t code : codes) {
    pending |= static_cast<uint64_t>(code) << pending_bits;
    pending_bits += bits;
    if (pending_bits >= 32) flush();
  }
  if (pending_bits > 0) flush();
}

}  // namespace gemmd
