// Units of codes, bit for bit, against the place that the layout gives every single code.
#include "kernels/device/pack_codes.cuh"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/pack/pack_weights.h"
#include "kernels/select/sm90_config.h"

namespace gemmd {
namespace {

constexpr int kRows = PackedLayout::kUnitRows;

class PackCodesTest : public ::testing::Test {
 protected:
  // Packs random codes of a layer of `n` rows of `k`, of which the slice from unit `first_unit` on is there.
  void Check(const Sm90Packing& packing, int64_t n, int64_t k, int64_t first_unit = 0) {
    const PackedLayout& layout = packing.layout;
    const int64_t row_words = (k * layout.code_bits + 31) / 32;
    // Spare bits may be anything.
    const std::vector<uint32_t> codes = RandomWords((n - first_unit * kRows) * row_words);
    PackArgs args{};
    args.codes = codes.data();
    args.row_words = row_words;
    args.n = n;
    args.k = k;
    args.first_unit = first_unit;
    args.layout = layout;
    args.map = CodeMapOf(packing.operand, layout.has_zero_points());
    for (int64_t block = 0; block < args.Blocks(PackedLayout::Units(n) - first_unit); ++block) {
      const device::PackedUnit unit = device::PackedUnit::Of(args, block);
      std::vector<uint32_t> got(static_cast<size_t>(unit.code_words()));
      for (int slot = 0; slot < unit.slots(); ++slot) {
        unit.PutSlot(slot, [&](int word, uint32_t bits) {
          uint32_t& at = got.at(static_cast<size_t>(word));
          EXPECT_EQ(at & bits, 0u) << "two codes in one place";
          at |= bits;
        });
      }
      ASSERT_EQ(got, Expected(packing, args, unit))
          << layout.code_bits << " bits, operands of " << layout.operand_bits << ", n " << n
          << ", k " << k << ", unit " << unit.unit << ", chunk " << unit.chunk;
    }
  }

  static std::vector<uint32_t> Expected(const Sm90Packing& packing, const PackArgs& args,
                                        const device::PackedUnit& unit) {
    const PackedLayout& layout = args.layout;
    std::vector<uint32_t> words;
    for (int slab = 0; slab < unit.slabs; ++slab) {
      std::vector<uint32_t> slab_words(static_cast<size_t>(layout.slab_bytes() / 4));
      for (int row = 0; row < kRows; ++row) {
        const int64_t n = unit.unit * kRows + row;
        for (int column = 0; column < layout.slab_columns(); ++column) {
          const int64_t k =
              unit.chunk * layout.chunk_columns() + slab * layout.slab_columns() + column;
          if (n >= args.n || k >= args.k) continue;
          const int64_t first = (n - args.first_unit * kRows) * args.row_words * 32;
          Put(packing, CodeAt(args.codes, first + k * layout.code_bits, layout.code_bits), row,
              column, slab_words);
        }
      }
      words.insert(words.end(), slab_words.begin(), slab_words.end());
    }
    return words;
  }

  static uint32_t CodeAt(const uint32_t* words, int64_t bit, int bits) {
    uint32_t code = 0;
    for (int i = 0; i < bits; ++i) {
      code |= (words[(bit + i) / 32] >> ((bit + i) % 32) & 1) << i;
    }
    return code;
  }

  // One code where contract/packed_weights.h says.
  static void Put(const Sm90Packing& packing, uint32_t code, int row, int column,
                  std::vector<uint32_t>& slab) {
    const PackedLayout& layout = packing.layout;
    const auto put = [&slab](int word, int shift, uint32_t bits) {
      slab[static_cast<size_t>(word)] |= bits << shift;
    };
    code = MapCode(CodeMapOf(packing.operand, layout.has_zero_points()), layout.code_bits, code);
    if (layout.has_whole_threes()) {
      const PackedLayout::FragmentPlace place = layout.FragmentOf(row, column);
      for (int bit = 0; bit < layout.code_bits; ++bit) {
        const PackedLayout::LanePlace at = PackedLayout::BitOfThree(place.v, bit);
        const PackedLayout::Plane plane = layout.PlaneAt(at.word < 2 ? 0 : 2);
        put(layout.WordIndex(plane, place.thread, at.word - layout.WordsOfThread(plane.first_bit)),
            at.shift + place.element * layout.lane_bits, code >> bit & 1);
      }
      return;
    }
    if (layout.has_spread_floats()) {
      const PackedLayout::FragmentPlace place = layout.FragmentOf(row, column);
      for (int bit = 0; bit < layout.code_bits; ++bit) {
        const auto [word, shift] = PackedLayout::BitOfSpread(place.v, place.element, bit);
        put(layout.WordIndex(layout.PlaneAt(0), place.thread, word), shift, code >> bit & 1);
      }
      return;
    }
    for (int bit = 0; bit < layout.code_bits;) {
      const PackedLayout::Plane plane = layout.PlaneAt(bit);
      const PackedLayout::CodePlace at = layout.PlaceOf(plane, row, column);
      if (layout.has_signs_apart) {
        put(at.word, at.shift, code & 7);
        put(at.word, PackedLayout::SignShift(at.shift / 4), code >> 3);
      } else {
        put(at.word, at.shift, code >> bit & ((1u << plane.bits) - 1));
      }
      bit += plane.bits;
    }
  }

  std::vector<uint32_t> RandomWords(int64_t count) {
    std::vector<uint32_t> words(static_cast<size_t>(count));
    for (uint32_t& word : words) word = static_cast<uint32_t>(random_());
    return words;
  }

  std::mt19937 random_{20261130};
};

Sm90Packing PackingOf(const NumberFormat& weight, const NumberFormat& activation,
                      ZeroPointKind zero_point = ZeroPointKind::kNone) {
  QuantSpec spec;
  spec.weight = weight;
  spec.scale = kFloat32;
  spec.scale_block_k = zero_point == ZeroPointKind::kNone ? 0 : 64;
  spec.zero_point = zero_point;
  spec.activation = activation;
  return Sm90PackingOf(spec, {1, 64, 128});
}

std::vector<Sm90Packing> Packings() {
  std::vector<Sm90Packing> packings;
  for (int bits = 1; bits <= 8; ++bits) {
    packings.push_back(PackingOf(IntegerFormat(bits), kNoFormat));
    packings.push_back(PackingOf(IntegerFormat(bits), IntegerFormat(8)));
    packings.push_back(PackingOf(IntegerFormat(bits), IntegerFormat(8), ZeroPointKind::kInteger));
    if (bits <= 4) packings.push_back(PackingOf(IntegerFormat(bits), kFloat8E4M3));
  }
  for (const NumberFormat& activation : {kNoFormat, kFloat8E4M3, kFloat8E5M2}) {
    for (const NumberFormat& weight :
         {kFloat4E2M1, FloatFormat(1, 1), FloatFormat(0, 3), FloatFormat(3, 0), FloatFormat(0, 4),
          FloatFormat(2, 2), FloatFormat(3, 2), FloatFormat(2, 3), FloatFormat(3, 3), kFloat8E4M3,
          kFloat8E5M2}) {
      packings.push_back(PackingOf(weight, activation));  // e2m1 in 8 bits: signs apart
    }
  }
  for (const NumberFormat& weight :
       {FloatFormat(3, 4), FloatFormat(1, 6), FloatFormat(0, 7), kBFloat16, kFloat16}) {
    packings.push_back(PackingOf(weight, kNoFormat));
  }
  packings.push_back(PackingOf(kFloat4E2M1, IntegerFormat(8)));
  return packings;
}

TEST_F(PackCodesTest, EveryCodeIsWhereTheLayoutSays) {
  for (const Sm90Packing& packing : Packings()) {
    Check(packing, 64, 256);
    ASSERT_FALSE(HasFatalFailure());
  }
}

TEST_F(PackCodesTest, WhatNAndKDoNotReachIsZero) {
  for (const Sm90Packing& packing : Packings()) {
    for (const auto& [n, k] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 1}, {70, 300}, {64, 61}, {129, 129}, {9, 65}}) {
      Check(packing, n, k);
      ASSERT_FALSE(HasFatalFailure());
    }
  }
}

TEST_F(PackCodesTest, SlicesOfRowsAreUnitsOfTheSameLayer) {
  for (const int64_t first_unit : {1, 2}) {
    Check(PackingOf(IntegerFormat(4), kNoFormat), 150, 200, first_unit);
    Check(PackingOf(IntegerFormat(3), kNoFormat), 150, 200, first_unit);
  }
}

// The generic kernel reads codes so: what was put is found again.
TEST_F(PackCodesTest, PartsOfACodeAreAllItsBits) {
  for (const Sm90Packing& packing : Packings()) {
    const PackedLayout& layout = packing.layout;
    ASSERT_LE(CodePartCount(layout), kMostCodeParts);
    for (int column = 0; column < layout.slab_columns(); column += 5) {
      const auto code = static_cast<uint32_t>(random_()) & ((1u << layout.code_bits) - 1);
      uint32_t found = 0;
      for (int i = 0; i < CodePartCount(layout); ++i) {
        const CodePart part = CodePartOf(layout, i, column % kRows, column);
        EXPECT_LE(part.shift + part.bits, 32);
        found |= part.From(part.In(code));
      }
      EXPECT_EQ(found, code) << layout.code_bits << " bits";
    }
  }
}

}  // namespace
}  // namespace gemmd
