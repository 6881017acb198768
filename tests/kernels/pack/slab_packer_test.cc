// Whole slabs, bit for bit, against the place that the layout gives every single code.
#include "kernels/pack/slab_packer.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "kernels/select/sm90_config.h"

namespace gemmd {
namespace {

constexpr int kRows = PackedLayout::kUnitRows;

// Columns of a slab that rows have: all, and ends inside of every group of a row's four threads.
std::vector<int> ColumnCounts(const PackedLayout& layout) {
  std::vector<int> counts = {layout.slab_columns()};
  for (int columns = 1; columns < layout.slab_columns(); columns += 7) counts.push_back(columns);
  return counts;
}

class SlabPackerTest : public ::testing::Test {
 protected:
  // Packs random codes in `rows` rows of `columns`, and compares.
  void Check(const Sm90Packing& packing, int rows, int columns) {
    const PackedLayout& layout = packing.layout;
    const SlabPacker packer(packing);
    SlabCodes codes;
    std::vector<std::byte> want(static_cast<size_t>(layout.slab_bytes()));
    for (int row = 0; row < rows; ++row) {
      const std::vector<uint32_t> row_codes = RandomCodes(layout.code_bits, columns);
      const std::vector<std::byte> bits = BitRowOf(row_codes, layout.code_bits);
      packer.SetRow(bits.data(), row, columns, codes);
      for (int column = 0; column < columns; ++column) {
        Put(packing, row_codes[static_cast<size_t>(column)], row, column, want);
      }
    }
    std::vector<std::byte> got(want.size(), std::byte{0xee});
    packer.Write(codes, got.data());
    EXPECT_EQ(got, want) << layout.code_bits << " bits, operands of " << layout.operand_bits << ", "
                         << rows << " rows, " << columns << " columns";
  }

  std::vector<uint32_t> RandomCodes(int bits, int count) {
    std::vector<uint32_t> codes(static_cast<size_t>(count));
    for (uint32_t& code : codes) code = random_() & ((1u << bits) - 1);
    return codes;
  }

  static std::vector<std::byte> BitRowOf(const std::vector<uint32_t>& codes, int bits) {
    std::vector<std::byte> row((codes.size() * static_cast<size_t>(bits) + 7) / 8);
    for (size_t i = 0; i < codes.size() * static_cast<size_t>(bits); ++i) {
      const uint32_t bit = codes[i / static_cast<size_t>(bits)] >> (i % static_cast<size_t>(bits)) & 1;
      row[i / 8] |= static_cast<std::byte>(bit << (i % 8));
    }
    return row;
  }

  // One code where contract/packed_weights.h says.
  static void Put(const Sm90Packing& packing, uint32_t code, int row, int column,
                  std::vector<std::byte>& slab) {
    const PackedLayout& layout = packing.layout;
    const auto put = [&slab](int word, int shift, uint32_t bits) {
      for (auto at = static_cast<size_t>(word * 4 + shift / 8); bits != 0; bits >>= 8, ++at) {
        slab[at] |= static_cast<std::byte>(bits << (shift % 8));
      }
    };
    if (packing.operand.is_top_aligned(layout.has_zero_points)) code ^= 1u << (layout.code_bits - 1);
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
  packings.push_back(PackingOf(kFloat4E2M1, kFloat8E4M3));  // signs apart
  packings.push_back(PackingOf(kFloat4E2M1, IntegerFormat(8)));
  packings.push_back(PackingOf(FloatFormat(3, 2), kFloat8E4M3));
  packings.push_back(PackingOf(kFloat8E4M3, kFloat8E4M3));
  packings.push_back(PackingOf(kBFloat16, kNoFormat));
  return packings;
}

TEST_F(SlabPackerTest, PutsEveryBitWhereTheLayoutSays) {
  bool has_signs_apart = false, has_flips = false, has_wide_tiles = false;
  for (const Sm90Packing& packing : Packings()) {
    has_signs_apart |= packing.layout.has_signs_apart;
    has_flips |= packing.operand.is_top_aligned(packing.layout.has_zero_points);
    has_wide_tiles |= packing.layout.is_direct() && packing.layout.code_bits == 16;
    for (const int columns : ColumnCounts(packing.layout)) Check(packing, kRows, columns);
    for (const int rows : {1, 7, 9, 33, 63}) Check(packing, rows, packing.layout.slab_columns());
  }
  EXPECT_TRUE(has_signs_apart && has_flips && has_wide_tiles);
}

TEST_F(SlabPackerTest, ASlabThatIsUsedAgainKeepsNothingOfTheLastOne) {
  const Sm90Packing packing = PackingOf(IntegerFormat(4), kNoFormat);
  const SlabPacker packer(packing);
  SlabCodes codes;
  const std::vector<std::byte> ones(32, std::byte{0xff}), zeros(32);
  for (int row = 0; row < kRows; ++row) packer.SetRow(ones.data(), row, 64, codes);
  for (int row = 0; row < kRows; ++row) packer.SetRow(zeros.data(), row, 5, codes);
  std::vector<std::byte> slab(static_cast<size_t>(packing.layout.slab_bytes()), std::byte{1});
  packer.Write(codes, slab.data());
  EXPECT_EQ(slab, std::vector<std::byte>(slab.size()));
}

TEST_F(SlabPackerTest, NoticesEverySpecialCodeAndNoOther) {
  for (const NumberFormat& weight : {kFloat8E4M3, kFloat8E5M2}) {
    const SlabPacker packer(PackingOf(weight, kNoFormat));
    for (uint32_t code = 0; code < 256; ++code) {
      SlabCodes codes;
      std::vector<std::byte> row(64, std::byte{0x3c});
      row[code % 64] = static_cast<std::byte>(code);
      packer.SetRow(row.data(), 13, 64, codes);
      const uint32_t magnitude = code & 0x7f;
      const bool special = weight == kFloat8E4M3 ? magnitude == 0x7f : magnitude >= 0x7c;
      EXPECT_EQ(packer.HasSpecial(codes), special) << "code " << code;
    }
  }
  const SlabPacker wide(PackingOf(kBFloat16, kNoFormat));
  for (uint32_t code = 0; code < 0x10000; ++code) {
    SlabCodes codes;
    std::vector<uint16_t> row(64, 0x3f80);
    row[code % 64] = static_cast<uint16_t>(code);
    wide.SetRow(reinterpret_cast<const std::byte*>(row.data()), 13, 64, codes);
    ASSERT_EQ(wide.HasSpecial(codes), (code & 0x7fff) >= 0x7f80) << "code " << code;
  }
}

}  // namespace
}  // namespace gemmd
