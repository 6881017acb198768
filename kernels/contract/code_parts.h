// What    CodePart: where some bits of one code lie in its slab (packed_weights.h). Packing puts them there
//         (device/pack_codes.cuh), the generic kernel collects them (device/code_source.cuh): the parts of
//         a code are all its bits, each once.
#ifndef GEMMD_KERNELS_CONTRACT_CODE_PARTS_H_
#define GEMMD_KERNELS_CONTRACT_CODE_PARTS_H_

#include <cstdint>

#include "kernels/contract/packed_weights.h"

namespace gemmd {

struct CodePart {
  int first_bit;  // of the code
  int bits;
  int word;   // of the slab
  int shift;  // in the word

  constexpr uint32_t mask() const { return (1u << bits) - 1; }
  // The part of `code`, where it lies in the word; and back.
  constexpr uint32_t In(uint32_t code) const { return (code >> first_bit & mask()) << shift; }
  constexpr uint32_t From(uint32_t word_bits) const {
    return (word_bits >> shift & mask()) << first_bit;
  }
};

inline constexpr int kMostCodeParts = 4;  // the bits of e2m1, spread

constexpr int CodePartCount(const PackedLayout& layout) {
  if (layout.has_whole_threes()) return 3;
  if (layout.has_spread_floats()) return 4;
  if (layout.has_signs_apart) return 2;
  int planes = 0;
  for (int bits = layout.code_bits; bits != 0; bits &= bits - 1) ++planes;
  return planes;
}

// Part `index` of the code in `row` of the unit and `column` of the slab.
constexpr CodePart CodePartOf(const PackedLayout& layout, int index, int row, int column) {
  if (layout.has_whole_threes()) {  // a part is a bit
    const PackedLayout::FragmentPlace place = layout.FragmentOf(row, column);
    const PackedLayout::LanePlace at = PackedLayout::BitOfThree(place.v, index);
    const PackedLayout::Plane plane = layout.PlaneAt(at.word < layout.WordsOfThread(2) ? 0 : 2);
    const int word = at.word - layout.WordsOfThread(plane.first_bit);
    return {index, 1, layout.WordIndex(plane, place.thread, word),
            at.shift + place.element * layout.lane_bits};
  }
  PackedLayout::Plane plane = layout.PlaneAt(0);
  if (layout.has_spread_floats()) {  // a part is a bit
    const PackedLayout::FragmentPlace place = layout.FragmentOf(row, column);
    const PackedLayout::LanePlace at = PackedLayout::BitOfSpread(place.v, place.element, index);
    return {index, 1, layout.WordIndex(plane, place.thread, at.word), at.shift};
  }
  if (layout.has_signs_apart) {
    const PackedLayout::CodePlace at = layout.PlaceOf(plane, row, column);
    const int magnitude_bits = layout.code_bits - 1;
    if (index == 0) return {0, magnitude_bits, at.word, at.shift};
    return {magnitude_bits, 1, at.word, PackedLayout::SignShift(at.shift / layout.lane_bits)};
  }
  for (int i = 0; i < index; ++i) plane = layout.PlaneAt(plane.first_bit + plane.bits);
  const PackedLayout::CodePlace at = layout.PlaceOf(plane, row, column);
  return {plane.first_bit, plane.bits, at.word, at.shift};
}

}  // namespace gemmd

#endif  // GEMMD_KERNELS_CONTRACT_CODE_PARTS_H_
