// Packed weights, read back the way the device parts read them: thread by thread, decoded to the operands of
// wgmma's fragment, and compared with the layer's weights.
#include "kernels/pack/pack_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/base/status.h"
#include "kernels/contract/code_map.h"
#include "kernels/contract/element_format.h"
#include "kernels/contract/packed_weights.h"
#include "kernels/device/decode_bytes_sm90.cuh"
#include "kernels/device/decode_pairs_sm90.cuh"
#include "kernels/select/gemm_config.h"
#include "kernels/select/sm90_config.h"
#include "tests/kernels/random_layer.h"

namespace gemmd::testing {
namespace {

using ::testing::HasSubstr;

// Two 16-bit floats in a register, as PairMath does it on the device.
template <ElementType kType>
struct HostPairs {
  // a * b + c in double precision, which holds it, rounded once.
  static uint32_t Fuse(uint32_t a, uint32_t b, uint32_t c) {
    const NumberFormat format = FormatOf(kType);
    uint32_t result = 0;
    for (int shift : {0, 16}) {
      const auto number = [&](uint32_t pair) { return DecodeNumber(format, pair >> shift & 0xffffu); };
      result |= EncodeNumber(format, number(a) * number(b) + number(c)) << shift;
    }
    return result;
  }
  static uint32_t Subtract(uint32_t a, uint32_t b) {
    return Fuse(a, EncodeNumber(FormatOf(kType), 1) * 0x00010001u, b ^ 0x80008000u);
  }
  static uint32_t Multiply(uint32_t a, uint32_t b) { return Fuse(a, b, 0x80008000u); }
  static uint32_t Narrow(float low, float high) {
    const NumberFormat format = FormatOf(kType);
    return EncodeNumber(format, low) | EncodeNumber(format, high) << 16;
  }
};

// What a kernel's Config says about codes.
template <NumberFormat kFormat, ElementType kX, ZeroPointKind kZero>
struct OperandConfig {
  static constexpr NumberFormat kWeight = kFormat;
  static constexpr ElementType kXType = kX;
  static constexpr ZeroPointKind kZeroPoint = kZero;
  static constexpr Sm90Operand kOperand = {kFormat, kX};
  static constexpr PackedLayout Layout() {
    return {.code_bits = kFormat.bits,
            .operand_bits = kOperand.bits(),
            .lane_bits = kOperand.by_table() ? 4 : kOperand.bits(),
            .has_signs_apart = kOperand.has_signs_apart()};
  }
};

template <typename T>
T ValueAt(absl::Span<const std::byte> bytes, int64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

// Weights of one layer as threads of a warpgroup see them.
template <class Config>
class PackedReader {
 public:
  PackedReader(const StandardTensor& tensor, const PackedWeights& packed)
      : tensor_(tensor), packing_(Sm90PackingOf(tensor.spec, tensor.shape)), packed_(packed) {}

  void ExpectEveryWeight() const {
    const auto& [experts, n, k] = tensor_.shape;
    for (int64_t row = 0; row < n; ++row) rows_.push_back(WeightRow(tensor_, 0, row));
    for (int64_t chunk = 0; chunk < layout().Chunks(k); ++chunk) {
      for (int64_t unit = 0; unit < PackedLayout::Units(n); ++unit) {
        for (int slab = 0; slab < layout().SlabsOf(chunk, k); ++slab) {
          ExpectSlab(chunk, unit, slab);
          if (::testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }

 private:
  static constexpr bool kIsWide = Config::kOperand.is_wide();
  static constexpr int kElements = 32 / Config::kOperand.bits();

  const PackedLayout& layout() const { return packing_.layout; }

  // PTX ISA, fragment A of wgmma: element `e` of register v of a thread.
  struct Element {
    int row;     // of the unit
    int column;  // of the slab
  };
  static Element ElementOf(int thread, int v, int e) {
    const int lane = thread % 32;
    const int i = v % 4;
    return {thread / 32 * 16 + lane / 4 + i % 2 * 8,
            v / 4 * 8 * kElements + lane % 4 * kElements + e + i / 2 * 4 * kElements};
  }

  uint32_t ZeroPoint(int64_t unit_offset, int place) const {
    if (!layout().has_zero_points()) return 1u << (Config::kWeight.bits - 1);
    return ValueAt<uint8_t>(packed_.units, unit_offset + layout().zero_point_offset() + place);
  }

  // Scale of the sums and the row's factor.
  double Factor(int64_t unit_offset, int place, int64_t row) const {
    double factor = Config::kOperand.is_raised() ? std::exp2(-Sm90Operand::kRaisedExponent) : 1;
    const int64_t at = unit_offset + place * layout().scale_bytes;
    if (layout().scale_bytes == 4) factor *= ValueAt<float>(packed_.units, at);
    if (layout().scale_bytes == 2) {
      factor *= DecodeNumber(packing_.group_scale, ValueAt<uint16_t>(packed_.units, at));
    }
    if (!packed_.channel_factor.empty()) factor *= ValueAt<float>(packed_.channel_factor, row * 4);
    return factor;
  }

  // A tile of codes that need no decoding is read as ldmatrix does it.
  static device::SlabCodesSm90<Config> CodesOf(const char* slab, int thread) {
    device::SlabCodesSm90<Config> codes;
    if constexpr (Config::Layout().is_direct()) {
      for (int v = 0; v < PackedLayout::kRegisters; ++v) {
        const Element first = ElementOf(thread, v, 0);
        const int byte_of_row = first.column * Config::kOperand.bits() / 8;
        std::memcpy(&codes.words[v], slab + PackedLayout::TileOffset(first.row, byte_of_row),
                    sizeof(codes.words[v]));
      }
    } else {
      codes.Load(slab, thread);
    }
    return codes;
  }

  void ExpectSlab(int64_t chunk, int64_t unit, int slab) const {
    const int64_t offset = layout().UnitOffset(chunk, unit, tensor_.shape.n, tensor_.shape.k);
    const auto* codes_at = reinterpret_cast<const char*>(packed_.units.data()) + offset +
                           layout().code_offset() + slab * layout().slab_bytes();
    for (int thread = 0; thread < 128; ++thread) {
      const device::SlabCodesSm90<Config> codes = CodesOf(codes_at, thread);
      for (int at = 0; at < 16 * kElements; ++at) {
        const int v = at / kElements;
        const auto [r, c] = ElementOf(thread, v, at % kElements);
        const int64_t row = unit * 64 + r;
        const int column_of_chunk = slab * layout().slab_columns() + c;
        const int64_t column = chunk * layout().chunk_columns() + column_of_chunk;
        if (row >= tensor_.shape.n || column >= tensor_.shape.k) continue;
        const int place = column_of_chunk / layout().scale_step * 64 + PackedLayout::PairIndex(r);
        if constexpr (Config::kZeroPoint == ZeroPointKind::kFloat) {
          const double line = Line(codes, v, at % kElements, offset, place);
          ExpectRoundedOnce(line, rows_[static_cast<size_t>(row)][static_cast<size_t>(column)], offset, place, row);
          continue;
        }
        const uint32_t steps =
            packing_.is_folded ? ValueAt<uint8_t>(packed_.units, offset + place) : 0;
        const double got = Operand(codes, v, at % kElements, ZeroPoint(offset, place), steps) *
                           Factor(offset, place, row);
        const double want = rows_[static_cast<size_t>(row)][static_cast<size_t>(column)];
        // Exact but for the product of a row's scale and its secondary scale in float32.
        ASSERT_NEAR(got, want, std::abs(want) * 1e-7) << row << ", " << column;
        if constexpr (Config::kOperand.can_fuse(Config::kZeroPoint == ZeroPointKind::kInteger, 1)) {
          if (packing_.is_relative) {
            const int64_t scale_at = offset + place * layout().scale_bytes;
            ExpectFused(codes, v, at % kElements, ValueAt<uint16_t>(packed_.units, scale_at));
          }
        }
      }
    }
  }

  float LineOffset(int64_t unit_offset, int place) const {
    return ValueAt<float>(packed_.units, unit_offset + layout().zero_point_offset() + place * 4);
  }
  double Line(const device::SlabCodesSm90<Config>& codes, int v, int element, int64_t unit_offset, int place) const {
    using Decode = device::DecodePairsSm90<Config, HostPairs<Config::kXType>>;
    const auto scale = ValueAt<float>(packed_.units, unit_offset + place * 4);
    const uint32_t pair = Decode::DecodeLine(codes, v, scale, LineOffset(unit_offset, place));
    return DecodeNumber(FormatOf(Config::kXType), pair >> (16 * element) & 0xffffu);
  }
  // Half a unit in the last place of x's type, and what float32 loses of zero point times scale.
  void ExpectRoundedOnce(double line, double want, int64_t unit_offset, int place, int64_t row) const {
    const double factor = ValueAt<float>(packed_.channel_factor, row * 4);
    const bool is_float16 = Config::kXType == ElementType::kFloat16;
    const double half_step = std::max(std::abs(want / factor) * (is_float16 ? 0x1p-11 : 0x1p-8), 0x1p-25);
    const double lost = std::abs(LineOffset(unit_offset, place)) * 0x1p-22;
    ASSERT_NEAR(line, want / factor, half_step + lost) << row;
  }

  // Weight times scale in one fma: rounded once.
  void ExpectFused(const device::SlabCodesSm90<Config>& codes, int v, int element,
                   uint32_t scale) const {
    using Decode = device::DecodePairsSm90<Config, HostPairs<Config::kXType>>;
    const uint32_t both = scale * 0x00010001u;
    const uint32_t pair =
        Decode::DecodeFused(codes, v, Decode::Scaled(both, Decode::RaisingPower(0)),
                            Decode::Scaled(both, Decode::RaisingPower(Decode::kBeside)),
                            Decode::Scaled(both, Decode::Offset(Decode::kHalf)));
    const double raised = std::exp2(Sm90Operand::kRaisedExponent);
    const double weight = Operand(codes, v, element, Decode::kHalf, 0) / raised;
    const double want =
        DecodeNumber(kBFloat16, EncodeNumber(kBFloat16, weight * DecodeNumber(kBFloat16, scale)));
    ASSERT_EQ(DecodeNumber(kBFloat16, pair >> (16 * element) & 0xffffu), want * raised)
        << "weight " << weight << ", scale " << DecodeNumber(kBFloat16, scale);
  }

  double Operand(const device::SlabCodesSm90<Config>& codes, int v, int element,
                 uint32_t zero_point, uint32_t steps) const {
    if constexpr (kIsWide) {
      using Decode = device::DecodePairsSm90<Config, HostPairs<Config::kXType>>;
      const uint32_t pair = Decode::Decode(codes, v, Decode::Offset(zero_point));
      return DecodeNumber(FormatOf(Config::kXType), pair >> (16 * element) & 0xffffu);
    } else {
      using Decode = device::DecodeBytesSm90<Config>;
      const uint32_t offset = Decode::Offset(zero_point);
      uint32_t two[2];
      if (packing_.is_folded) {
        Decode::DecodeTwoFolded(codes, v / 2, {steps, steps}, two);
      } else {
        Decode::DecodeTwo(codes, v / 2, {offset, offset}, two);
      }
      const uint32_t byte = two[v % 2] >> (8 * element) & 0xffu;
      if (Config::kXType == ElementType::kInt8) return static_cast<int8_t>(byte);
      return DecodeNumber(Config::kOperand.is_e5m2() ? kFloat8E5M2 : kFloat8E4M3, byte);
    }
  }

  const StandardTensor& tensor_;
  const Sm90Packing packing_;
  const PackedWeights& packed_;
  mutable std::vector<std::vector<double>> rows_;
};

absl::StatusOr<PackedWeights> Pack(const StandardTensor& tensor) {
  return PackWeights(tensor.spec, tensor.shape,
                     {tensor.codes, tensor.scales, tensor.zero_points, tensor.secondary_scales});
}

template <class Config>
void ExpectPacked(const QuantSpec& spec, const LayerShape& shape, Random& random) {
  const absl::Status supported = SupportsSm90(spec, shape, "sm_90a");
  ASSERT_TRUE(supported.ok()) << supported.ToString();
  StandardTensor tensor = RandomTensor(spec, shape, random);
  const bool has_integers = spec.zero_point == ZeroPointKind::kInteger;
  for (int64_t i = 0; has_integers && i < static_cast<int64_t>(tensor.zero_points.size()) / 2; ++i) {
    const auto zero = ValueAt<int16_t>(tensor.zero_points, i * 2);
    SetValue<int16_t>(tensor.zero_points, i, std::min<int16_t>(zero, 255));
  }
  const absl::StatusOr<PackedWeights> packed = Pack(tensor);
  ASSERT_TRUE(packed.ok()) << packed.status().ToString();
  PackedReader<Config>(tensor, *packed).ExpectEveryWeight();
}

// Every granularity the layout has for the format, on shapes with tails.
template <NumberFormat kFormat, ElementType kX, ZeroPointKind kZero = ZeroPointKind::kNone>
void ExpectFormat() {
  using Config = OperandConfig<kFormat, kX, kZero>;
  SCOPED_TRACE(NumberFormatName(kFormat) + " weights, " + NumberFormatName(FormatOf(kX)) +
               (kZero == ZeroPointKind::kNone ? "" : ", zero points"));
  Random random(5);
  const std::vector<NumberFormat> scales = {kFloat16,    kBFloat16,   kFloat32,
                                            kFloat8E4M3, kFloat8E8M0, kNoFormat};
  size_t index = kFormat.bits;
  const bool has_eight_bit_zero_points =
      !Config::kOperand.is_wide() && kZero != ZeroPointKind::kNone;
  for (const int64_t group :
       {has_eight_bit_zero_points ? 64 : 32, has_eight_bit_zero_points ? 192 : 96, 0, 256}) {
    for (const LayerShape& shape : {LayerShape{1, 70, 300}, {1, 64, 61}}) {
      QuantSpec spec;
      spec.weight = kFormat;
      spec.scale = scales[index++ % scales.size()];
      spec.scale_block_k = group;
      spec.zero_point = kZero;
      spec.secondary_scale = static_cast<SecondaryScaleKind>(index % 3);
      if (!Config::kOperand.is_wide()) spec.activation = FormatOf(kX);
      ExpectPacked<Config>(spec, shape, random);
      ASSERT_FALSE(::testing::Test::HasFatalFailure()) << "group " << group << ", K " << shape.k;
    }
  }
}

template <ElementType kX, int... kBits>
void ExpectIntegers() {
  (ExpectFormat<IntegerFormat(kBits), kX>(), ...);
}
template <ZeroPointKind kZero, ElementType kX, int... kBits>
void ExpectIntegersWithZeroPoints() {
  (ExpectFormat<IntegerFormat(kBits), kX, kZero>(), ...);
}
template <ElementType kX, NumberFormat... kFormats>
void ExpectFormats() {
  (ExpectFormat<kFormats, kX>(), ...);
}

TEST(PackWeightsTest, IntegersInSixteenBitFloats) {
  ExpectIntegers<ElementType::kBFloat16, 1, 2, 3, 4, 5, 6, 7, 8>();
  ExpectIntegers<ElementType::kFloat16, 1, 2, 3, 4, 5, 6, 7, 8>();
  ExpectIntegersWithZeroPoints<ZeroPointKind::kInteger, ElementType::kBFloat16, 1, 3, 4, 7, 8>();
  ExpectIntegersWithZeroPoints<ZeroPointKind::kInteger, ElementType::kFloat16, 2, 4, 8>();
}

TEST(PackWeightsTest, FloatingPointZeroPointsInSixteenBitFloats) {
  ExpectIntegersWithZeroPoints<ZeroPointKind::kFloat, ElementType::kBFloat16, 1, 2, 3, 4, 5, 6, 7, 8>();
  ExpectIntegersWithZeroPoints<ZeroPointKind::kFloat, ElementType::kFloat16, 2, 3, 4, 7, 8>();
}

TEST(PackWeightsTest, FloatsInSixteenBitFloats) {
  ExpectFormats<ElementType::kBFloat16, FloatFormat(1, 1), FloatFormat(2, 0), kFloat4E2M1,
                FloatFormat(3, 0), FloatFormat(0, 3), FloatFormat(2, 2), FloatFormat(4, 0),
                FloatFormat(2, 3), FloatFormat(3, 2), FloatFormat(4, 1), FloatFormat(2, 4),
                FloatFormat(6, 0), FloatFormat(1, 6), kFloat8E4M3, kFloat8E5M2, FloatFormat(3, 4),
                FloatFormat(7, 0), FloatFormat(0, 7)>();
  ExpectFormats<ElementType::kFloat16, kFloat4E2M1, FloatFormat(0, 3), FloatFormat(3, 2),
                FloatFormat(1, 6), kFloat8E4M3, kFloat8E5M2, FloatFormat(3, 4),
                FloatFormat(0, 7)>();
}

TEST(PackWeightsTest, EightBitFloats) {
  ExpectIntegers<ElementType::kFloat8E4M3, 1, 2, 3, 4>();
  ExpectFormats<ElementType::kFloat8E4M3, FloatFormat(1, 1), kFloat4E2M1, FloatFormat(0, 3),
                FloatFormat(3, 0), FloatFormat(0, 4), FloatFormat(2, 2), FloatFormat(3, 2),
                FloatFormat(2, 3), FloatFormat(3, 3), FloatFormat(4, 2), kFloat8E4M3,
                kFloat8E5M2>();
  ExpectFormats<ElementType::kFloat8E5M2, kFloat4E2M1, kFloat8E4M3, kFloat8E5M2>();
}

TEST(PackWeightsTest, Int8) {
  ExpectIntegers<ElementType::kInt8, 1, 2, 3, 4, 5, 6, 7, 8>();
  ExpectIntegersWithZeroPoints<ZeroPointKind::kInteger, ElementType::kInt8, 1, 3, 4, 7>();
  ExpectFormats<ElementType::kInt8, kFloat4E2M1>();
}

QuantSpec Spec(const NumberFormat& weight, const NumberFormat& scale, int64_t group) {
  QuantSpec spec;
  spec.weight = weight;
  spec.scale = scale;
  spec.scale_block_k = group;
  return spec;
}

TEST(PackWeightsTest, UnquantizedWeightsAreTilesAsTheyAre) {
  Random random(8);
  for (const LayerShape& shape : {LayerShape{1, 70, 300}, {1, 64, 61}}) {
    ExpectPacked<OperandConfig<kBFloat16, ElementType::kBFloat16, ZeroPointKind::kNone>>(
        Spec(kBFloat16, kNoFormat, 0), shape, random);
    ExpectPacked<OperandConfig<kFloat16, ElementType::kFloat16, ZeroPointKind::kNone>>(
        Spec(kFloat16, kNoFormat, 0), shape, random);
  }
}

// What tests/gpu sees of it is whole matrices: this is the layout that wgmma reads.
TEST(PackWeightsTest, TilesAreSwizzledOverRowsOf128Bytes) {
  EXPECT_EQ(PackedLayout::TileOffset(0, 17), 17);
  EXPECT_EQ(PackedLayout::TileOffset(1, 0), 128 + 16);
  EXPECT_EQ(PackedLayout::TileOffset(6, 2 * 16 + 5), 6 * 128 + 4 * 16 + 5);
  EXPECT_EQ(PackedLayout::TileOffset(15, 7 * 16), 15 * 128);
}

TEST(PackWeightsTest, BlocksOfRowsShareScales) {
  Random random(7);
  QuantSpec spec = Spec(IntegerFormat(4), kFloat32, 128);
  spec.scale_block_n = 48;
  ExpectPacked<OperandConfig<IntegerFormat(4), ElementType::kBFloat16, ZeroPointKind::kNone>>(
      spec, {1, 130, 300}, random);
}

TEST(PackWeightsTest, TheLastChunkKeepsOnlyTheSlabsThatKReaches) {
  PackedLayout layout;
  layout.scale_bytes = 2;
  EXPECT_EQ(layout.UnitBytes(2), 64 * 2 + 4096);
  EXPECT_EQ(layout.Bytes(128, 256), 2 * 2 * (64 * 2 + 4096));
  EXPECT_EQ(layout.Bytes(128, 257), 2 * 2 * (64 * 2 + 4096) + 2 * (64 * 2 + 2048));
  EXPECT_EQ(layout.Bytes(65, 64), 2 * (64 * 2 + 2048));
}

TEST(PackWeightsTest, ScalesThatServeAWholeRowTakeNoPlaceBesideTheCodes) {
  Random random(6);
  const StandardTensor tensor =
      RandomTensor(Spec(IntegerFormat(4), kFloat16, 0), {1, 64, 128}, random);
  const absl::StatusOr<PackedWeights> packed = Pack(tensor);
  ASSERT_TRUE(packed.ok());
  EXPECT_EQ(packed->units.size(), 4096u);
  EXPECT_EQ(packed->channel_factor.size(), 64u * 4);
  EXPECT_EQ(Pack(tensor)->units, packed->units);
}

TEST(PackWeightsTest, FoldsScalesOfElevenPowersOfTwoAndThoseOfZeros) {
  using Config = OperandConfig<kFloat4E2M1, ElementType::kFloat8E4M3, ZeroPointKind::kNone>;
  Random random(9);
  QuantSpec spec = Spec(kFloat4E2M1, kFloat8E8M0, 32);
  spec.activation = kFloat8E4M3;
  StandardTensor tensor = RandomTensor(spec, {1, 64, 512}, random);
  for (size_t row = 0; row < 64; ++row) {
    for (size_t group = 0; group < 16; ++group) {
      tensor.scales[row * 16 + group] = std::byte(60 + row + group % 12);
    }
  }
  // A group of zeros may have any scale.
  for (int64_t k = 64; k < 96; ++k) SetCode(tensor.codes, 3 * spec.RowWords(512), 4, k, 0);
  tensor.scales[3 * 16 + 2] = std::byte{0};
  const absl::StatusOr<PackedWeights> packed = Pack(tensor);
  ASSERT_TRUE(packed.ok()) << packed.status().ToString();
  PackedReader<Config>(tensor, *packed).ExpectEveryWeight();

  tensor.scales[5 * 16 + 1] = std::byte(60 + 5 + 11 - 12);
  SetCode(tensor.codes, 5 * spec.RowWords(512), 4, 40, 1);
  EXPECT_THAT(Pack(tensor).status().message(), HasSubstr("2^12 apart"));
  tensor.scales[5 * 16 + 1] = std::byte{255};
  EXPECT_THAT(Pack(tensor).status().message(), HasSubstr("no number"));
}

// Codes of integers in bfloat16 are raised by the largest power of two it has: scales of 2 and more would make them
// infinite, so a row's factor holds the power of two of its largest one.
TEST(PackWeightsTest, ScalesOfIntegersAreRelativeToTheirRow) {
  using Config = OperandConfig<IntegerFormat(4), ElementType::kBFloat16, ZeroPointKind::kNone>;
  Random random(11);
  const QuantSpec spec = Spec(IntegerFormat(4), kBFloat16, 128);
  StandardTensor tensor = RandomTensor(spec, {1, 64, 256}, random);
  const std::vector<double> scales = {0x1.fep127, 0x1p-126, -0x1.4p100, 3, 0x1.8p-133, 1};
  for (int64_t row = 0; row < 64; ++row) {
    const double scale = scales[static_cast<size_t>(row) % scales.size()];
    SetValue<uint16_t>(tensor.scales, 2 * row, EncodeNumber(kBFloat16, scale));
    SetValue<uint16_t>(tensor.scales, 2 * row + 1, EncodeNumber(kBFloat16, scale / 2));
  }
  const absl::StatusOr<PackedWeights> packed = Pack(tensor);
  ASSERT_TRUE(packed.ok()) << packed.status().ToString();
  for (int64_t at = 0; at < static_cast<int64_t>(packed->units.size());) {
    for (int64_t i = 0; i < 64; ++i, at += 2) {
      EXPECT_LT(std::abs(DecodeNumber(kBFloat16, ValueAt<uint16_t>(packed->units, at))), 2);
    }
    at += 4096;
  }
  PackedReader<Config>(tensor, *packed).ExpectEveryWeight();
}

TEST(PackWeightsTest, MappedCodesAreMappedBack) {
  for (const CodeMap map :
       {CodeMap::kNone, CodeMap::kTwosComplement, CodeMap::kOnesComplement}) {
    for (int bits = 1; bits <= 8; ++bits) {
      std::vector<bool> seen(size_t{1} << bits);
      for (uint32_t code = 0; code < 1u << bits; ++code) {
        const uint32_t mapped = MapCode(map, bits, code);
        ASSERT_LT(mapped, 1u << bits);
        EXPECT_FALSE(seen[mapped]);
        seen[mapped] = true;
        EXPECT_EQ(UnmapCode(map, bits, mapped), code);
      }
    }
  }
  EXPECT_EQ(MapCode(CodeMap::kOnesComplement, 4, 8), 0u) << "zero stays what padding is";
}

TEST(PackWeightsTest, RefusesWhatTheDecodePartsWouldMisread) {
  Random random(8);
  StandardTensor tensor = RandomTensor(Spec(kFloat8E4M3, kFloat32, 0), {1, 64, 128}, random);
  EXPECT_TRUE(Pack(tensor).ok());
  tensor.codes[77] = std::byte{0xff};
  EXPECT_THAT(Pack(tensor).status().message(), HasSubstr("no number"));
  EXPECT_EQ(ReasonOf(Pack(tensor).status()), "NO_KERNEL");
  tensor.spec.activation = kFloat8E4M3;  // as an operand it stays what it is
  EXPECT_TRUE(Pack(tensor).ok());

  QuantSpec spec = Spec(IntegerFormat(8), kFloat32, 64);
  spec.zero_point = ZeroPointKind::kInteger;
  tensor = RandomTensor(spec, {1, 64, 128}, random);
  SetValue<int16_t>(tensor.zero_points, 3, 256);
  EXPECT_THAT(Pack(tensor).status().message(), HasSubstr("zero point 256"));
}

}  // namespace
}  // namespace gemmd::testing
