// The generic kernel's own parts, run on the CPU (host_gemm.h), against the double-precision
// reference.
#include "tests/kernels/device/host_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/pack/pack_weights.h"
#include "tests/kernels/random_layer.h"

namespace gemmd::testing {
namespace {

const void* DataOf(const Buffer& buffer) { return buffer.empty() ? nullptr : buffer.data(); }

ElementType TypeOf(const NumberFormat& format) {
  if (format == kFloat16) return ElementType::kFloat16;
  if (format == kBFloat16) return ElementType::kBFloat16;
  if (format == kFloat8E4M3) return ElementType::kFloat8E4M3;
  if (format == kFloat8E5M2) return ElementType::kFloat8E5M2;
  if (format == kInt8) return ElementType::kInt8;
  return ElementType::kFloat32;
}

WeightArgs ArgsOf(const StandardTensor& tensor) {
  const auto [experts, n, k] = tensor.shape;
  const QuantSpec& spec = tensor.spec;
  WeightArgs args{};
  args.codes = static_cast<const uint32_t*>(DataOf(tensor.codes));
  args.scales = DataOf(tensor.scales);
  args.zero_points = DataOf(tensor.zero_points);
  args.secondary_scales = static_cast<const float*>(DataOf(tensor.secondary_scales));
  args.group_index = static_cast<const int32_t*>(DataOf(tensor.group_index));
  args.bias = DataOf(tensor.bias);
  args.row_words = spec.RowWords(k);
  args.experts = static_cast<int32_t>(experts);
  args.n = static_cast<int32_t>(n);
  args.k = static_cast<int32_t>(k);
  args.scale_rows = static_cast<int32_t>(spec.ScaleRows(n));
  args.scale_columns = static_cast<int32_t>(tensor.scale_columns);
  args.secondary_scale_rows = spec.secondary_scale == SecondaryScaleKind::kChannel ? args.n : 1;
  args.scale_block_n = static_cast<int32_t>(spec.scale_block_n == 0 ? n : spec.scale_block_n);
  args.scale_block_k = static_cast<int32_t>(spec.scale_block_k == 0 ? k : spec.scale_block_k);
  args.bias_type = TypeOf(spec.bias);
  return args;
}

GemmArgs ArgsOf(const StandardTensor& tensor, const HostMatrix& x, HostMatrix& y) {
  GemmArgs args{};
  args.weights = ArgsOf(tensor);
  args.x = x.bytes.data();
  args.y = y.bytes.data();
  args.x_row_stride = x.row_stride;
  args.y_row_stride = y.row_stride;
  args.m = x.rows;
  args.x_type = TypeOf(x.type);
  args.y_type = TypeOf(y.type);
  args.split_activations = x.type == kFloat32;
  return args;
}

void ExpectNearExact(const StandardTensor& tensor, int64_t expert, const HostMatrix& x,
                     const HostMatrix& y, int64_t x_row, int64_t y_row) {
  const std::vector<double> activations = MatrixRow(x, x_row);
  for (int64_t n = 0; n < tensor.shape.n; ++n) {
    ExactSum sum = ExactDot(activations, WeightRow(tensor, expert, n));
    const double bias = Bias(tensor, expert, n);
    sum.value += bias;
    sum.magnitude += std::abs(bias);
    ASSERT_NEAR(y.at(y_row, n), sum.value, Tolerance(sum, y.type))
        << "row " << y_row << " column " << n;
  }
}

template <class Config>
QuantSpec SpecOf(int64_t block_n, int64_t block_k) {
  QuantSpec spec;
  spec.weight = Config::kWeight;
  spec.scale = Config::kScale;
  spec.scale_block_n = block_n;
  spec.scale_block_k = block_k;
  spec.zero_point = Config::kZeroPoint;
  return spec;
}

template <class Config>
void ExpectDenseMatches(QuantSpec spec, int64_t n, int64_t k, int64_t m, NumberFormat x_type,
                        NumberFormat y_type, bool integers = false) {
  Random random(static_cast<uint64_t>(n * 1000 + k));
  const StandardTensor tensor = RandomTensor(spec, {1, n, k}, random, {.integer_valued = integers});
  const absl::Status valid = Validate(tensor);
  ASSERT_TRUE(valid.ok()) << valid.ToString();
  const HostMatrix x = RandomMatrix(x_type, m, k, random, integers, k + 3);
  HostMatrix y = PoisonedMatrix(y_type, m, n, n + 5);
  HostGemm<Config>::Run(ArgsOf(tensor, x, y), (m + 63) / 64);
  for (int64_t row = 0; row < m; ++row) {
    ExpectNearExact(tensor, 0, x, y, row, row);
    for (int64_t gap = n; gap < n + 5 && row + 1 < m; ++gap) {
      ASSERT_EQ(y.bits_at(row, gap), y_type.bits == 32 ? 0xffffffffu : 0xffffu);
    }
  }
}

// The config of the same kernel for packed codes.
template <class Config, CodeOrder kOrder>
using Packed = HostConfig<Config::kWeight, Config::kScale, Config::kZeroPoint, Config::kRowMapping,
                          Config::kWeightTerms, kOrder>;

// Arguments whose codes are in `packed` only.
void UsePacked(const StandardTensor& tensor, const PackedWeights& packed, WeightArgs& args) {
  args.codes = nullptr;
  args.packed = packed.units.data();
  args.packed_scale_bytes =
      static_cast<int32_t>(PackArgsOf(tensor.spec, tensor.shape).scale_unit_bytes());
}

PackedWeights PackedOf(const StandardTensor& tensor) {
  return *PackWeights(tensor.spec, tensor.shape,
                      {tensor.codes, tensor.scales, tensor.zero_points, tensor.secondary_scales});
}

NumberFormat ActivationFor(CodeOrder order) {
  return order == CodeOrder::kPackedForFloat8 ? kFloat8E4M3
         : order == CodeOrder::kPackedForInt8 ? kInt8
                                              : kNoFormat;
}

template <NumberFormat kWeight, CodeOrder kOrder, ZeroPointKind kZeroPoint = ZeroPointKind::kNone>
void ExpectSameCodes() {
  using Rows = HostConfig<kWeight, kFloat16, kZeroPoint>;
  QuantSpec spec = SpecOf<Rows>(1, 0);
  if (kWeight.bits > 8) spec.scale = kNoFormat;
  spec.activation = ActivationFor(kOrder);
  for (const int64_t group : {64, 0}) {
    spec.scale_block_k = group;
    for (const auto& [n, k] : std::vector<std::pair<int64_t, int64_t>>{{70, 300}, {129, 129}, {3, 61}}) {
      Random random(static_cast<uint64_t>(n + k));
      StandardTensor tensor = RandomTensor(spec, {1, n, k}, random);
      for (size_t at = 1; at < tensor.zero_points.size(); at += 2) tensor.zero_points[at] = std::byte{0};
      const PackedWeights packed = PackedOf(tensor);
      const WeightArgs rows = ArgsOf(tensor);
      WeightArgs units = rows;
      UsePacked(tensor, packed, units);
      for (int32_t row = 0; row < n; ++row) {
        for (int32_t column = 0; column < k; ++column) {
          const uint32_t want = device::CodeSource<Rows>::Load(rows, 0, row, column);
          const uint32_t got = device::CodeSource<Packed<Rows, kOrder>>::Load(units, 0, row, column);
          ASSERT_EQ(got, want) << int{kWeight.bits} << " bits, " << row << ", " << column << " of " << n
                               << " x " << k;
        }
      }
    }
  }
}

template <CodeOrder kOrder, NumberFormat... kWeights>
void ExpectSameCodesOfAll() {
  (ExpectSameCodes<kWeights, kOrder>(), ...);
}

template <CodeOrder kOrder, int... kBits>
void ExpectSameCodesOfIntegers() {
  (ExpectSameCodes<IntegerFormat(kBits), kOrder>(), ...);
}

TEST(CodeSourceTest, PackedCodesAreTheCodesOfTheRows) {
  ExpectSameCodesOfIntegers<CodeOrder::kPackedForWide, 1, 2, 3, 4, 5, 6, 7, 8>();
  ExpectSameCodesOfIntegers<CodeOrder::kPackedForInt8, 1, 2, 3, 4, 5, 6, 7, 8>();
  ExpectSameCodesOfIntegers<CodeOrder::kPackedForFloat8, 1, 2, 3, 4>();
  ExpectSameCodesOfAll<CodeOrder::kPackedForWide, kFloat4E2M1, FloatFormat(2, 2), FloatFormat(3, 2),
                       FloatFormat(3, 3), FloatFormat(3, 4)>();
  ExpectSameCodesOfAll<CodeOrder::kPackedForFloat8, kFloat4E2M1, FloatFormat(2, 2), FloatFormat(3, 2),
                       FloatFormat(3, 3), kFloat8E4M3>();
  ExpectSameCodes<kFloat4E2M1, CodeOrder::kPackedForInt8>();
  ExpectSameCodes<IntegerFormat(4), CodeOrder::kPackedForWide, ZeroPointKind::kInteger>();
  ExpectSameCodes<IntegerFormat(4), CodeOrder::kPackedForInt8, ZeroPointKind::kInteger>();
}

// A GEMM with codes from rows and from packed weights: the same bits.
template <class Rows, CodeOrder kOrder>
void ExpectSameBits(QuantSpec spec, int64_t n, int64_t k, int64_t m) {
  Random random(static_cast<uint64_t>(n * 1000 + k));
  spec.activation = ActivationFor(kOrder);
  const StandardTensor tensor = RandomTensor(spec, {1, n, k}, random);
  const HostMatrix x = RandomMatrix(kBFloat16, m, k, random, false, k + 3);
  HostMatrix want = PoisonedMatrix(kFloat32, m, n, n + 5);
  HostMatrix got = want;
  HostGemm<Rows>::Run(ArgsOf(tensor, x, want), (m + 63) / 64);
  GemmArgs args = ArgsOf(tensor, x, got);
  const PackedWeights packed = PackedOf(tensor);
  UsePacked(tensor, packed, args.weights);
  HostGemm<Packed<Rows, kOrder>>::Run(args, (m + 63) / 64);
  EXPECT_EQ(got.bytes, want.bytes);
}

TEST(HostGemmTest, CodesOfPackedWeightsGiveTheSameBits) {
  using Int4 = HostConfig<IntegerFormat(4), kFloat16, ZeroPointKind::kInteger>;
  ExpectSameBits<Int4, CodeOrder::kPackedForWide>(SpecOf<Int4>(1, 64), 130, 250, 3);
  using Mxfp4 = HostConfig<kFloat4E2M1, kFloat8E8M0, ZeroPointKind::kNone, RowMapping::kDense, 1>;
  ExpectSameBits<Mxfp4, CodeOrder::kPackedForWide>(SpecOf<Mxfp4>(1, 32), 65, 72, 17);
  using Int8 = HostConfig<IntegerFormat(8), kFloat32>;
  ExpectSameBits<Int8, CodeOrder::kPackedForInt8>(SpecOf<Int8>(1, 0), 70, 300, 5);
}

TEST(HostGemmTest, Int4WithGroupsThatDoNotDivideK) {
  using Config = HostConfig<IntegerFormat(4), kFloat16>;
  QuantSpec spec = SpecOf<Config>(1, 100);
  spec.bias = kBFloat16;
  ExpectDenseMatches<Config>(spec, 130, 250, 3, kFloat16, kFloat32);
}

TEST(HostGemmTest, Int3StraddlingWordsWithZeroPointsChannelScalesAndGroupIndex) {
  using Config = HostConfig<IntegerFormat(3), kBFloat16, ZeroPointKind::kInteger>;
  QuantSpec spec = SpecOf<Config>(1, 16);
  spec.has_group_index = true;
  spec.secondary_scale = SecondaryScaleKind::kChannel;
  ExpectDenseMatches<Config>(spec, 67, 45, 65, kBFloat16, kBFloat16);
}

TEST(HostGemmTest, BlockScaledFloat8) {
  using Config = HostConfig<kFloat8E4M3, kFloat32>;
  ExpectDenseMatches<Config>(SpecOf<Config>(48, 40), 70, 90, 2, kBFloat16, kFloat16);
}

TEST(HostGemmTest, Mxfp4WithOneTermPerWeight) {
  using Config = HostConfig<kFloat4E2M1, kFloat8E8M0, ZeroPointKind::kNone, RowMapping::kDense, 1>;
  ExpectDenseMatches<Config>(SpecOf<Config>(1, 32), 65, 72, 17, kBFloat16, kFloat32);
}

TEST(HostGemmTest, Nvfp4WithSecondaryTensorScale) {
  using Config = HostConfig<kFloat4E2M1, kFloat8E4M3>;
  QuantSpec spec = SpecOf<Config>(1, 16);
  spec.secondary_scale = SecondaryScaleKind::kTensor;
  ExpectDenseMatches<Config>(spec, 8, 80, 5, kFloat16, kFloat32);
}

TEST(HostGemmTest, Float32ActivationsAndFloat32WeightsKeepTheirPrecision) {
  using Config = HostConfig<kFloat32, kNoFormat>;
  ExpectDenseMatches<Config>(SpecOf<Config>(0, 0), 9, 33, 3, kFloat32, kFloat32);
}

TEST(HostGemmTest, TensorScaleWithFloatZeroPoint) {
  using Config = HostConfig<IntegerFormat(8), kFloat32, ZeroPointKind::kFloat>;
  ExpectDenseMatches<Config>(SpecOf<Config>(0, 0), 1, 1, 1, kInt8, kFloat32);
  ExpectDenseMatches<Config>(SpecOf<Config>(0, 0), 64, 64, 64, kFloat8E4M3, kFloat32);
}

TEST(HostGemmTest, IntegerValuesComeOutExact) {
  using Config = HostConfig<IntegerFormat(5), kFloat16>;
  Random random(5);
  const StandardTensor tensor =
      RandomTensor(SpecOf<Config>(1, 7), {1, 71, 61}, random, {.integer_valued = true});
  const HostMatrix x = RandomMatrix(kFloat16, 40, 61, random, true);
  HostMatrix y = PoisonedMatrix(kFloat32, 40, 71);
  HostGemm<Config>::Run(ArgsOf(tensor, x, y), 1);
  for (int64_t n = 0; n < 71; ++n) {
    const std::vector<double> weights = WeightRow(tensor, 0, n);
    for (int64_t m = 0; m < 40; ++m) {
      ASSERT_EQ(y.at(m, n), ExactDot(MatrixRow(x, m), weights).value) << m << ", " << n;
    }
  }
}

TEST(HostGemmTest, AppliesActivationScalesPerTokenAndPerGroup) {
  using Config = HostConfig<IntegerFormat(8), kFloat32>;
  Random random(11);
  const StandardTensor tensor = RandomTensor(SpecOf<Config>(1, 0), {1, 10, 50}, random);
  const HostMatrix x = RandomMatrix(kInt8, 6, 50, random);
  HostMatrix scaled = PoisonedMatrix(kFloat32, 6, 50);
  const HostMatrix scale = RandomMatrix(kFloat32, 6, 4, random, false, 5);
  HostMatrix y = PoisonedMatrix(kFloat32, 6, 10);
  GemmArgs args = ArgsOf(tensor, x, y);
  args.group_scale = reinterpret_cast<const float*>(scale.bytes.data());
  args.group_scale_stride = 5;
  args.group_scale_columns = 16;
  args.split_activations = 1;
  HostGemm<Config>::Run(args, 1);
  for (int64_t m = 0; m < 6; ++m) {
    for (int64_t k = 0; k < 50; ++k) scaled.set(m, k, x.at(m, k) * scale.at(m, k / 16));
    ExpectNearExact(tensor, 0, scaled, y, m, m);
  }
  args.group_scale = nullptr;
  args.row_scale = reinterpret_cast<const float*>(scale.bytes.data());
  args.row_scale_stride = 5;
  args.split_activations = 0;
  HostGemm<Config>::Run(args, 1);
  for (int64_t m = 0; m < 6; ++m) {
    for (int64_t k = 0; k < 50; ++k) scaled.set(m, k, x.at(m, k) * scale.at(m, 0));
    ExpectNearExact(tensor, 0, scaled, y, m, m);
  }
}

TEST(HostGemmTest, SpecialValuesStayInTheirRowAndColumn) {
  using Config = HostConfig<IntegerFormat(4), kFloat16>;
  Random random(3);
  StandardTensor tensor = RandomTensor(SpecOf<Config>(1, 32), {1, 20, 40}, random);
  HostMatrix x = RandomMatrix(kFloat32, 4, 40, random);
  // Code 9 stands for 1, so that no weight of column 7 is 0.
  for (int64_t n = 0; n < 20; ++n) SetCode(tensor.codes, n * tensor.spec.RowWords(40), 4, 7, 9);
  x.set(1, 7, HUGE_VAL);
  x.set(2, 39, std::nan(""));
  SetNumber(kFloat16, tensor.scales, 5 * 2 + 1, std::nan(""));  // row 5, last and partial group
  HostMatrix y = PoisonedMatrix(kFloat32, 4, 20);
  HostGemm<Config>::Run(ArgsOf(tensor, x, y), 1);
  for (int64_t n = 0; n < 20; ++n) {
    if (n == 5) {
      for (int64_t m = 0; m < 4; ++m) EXPECT_TRUE(std::isnan(y.at(m, n))) << m;
      continue;
    }
    const double scale = WeightRow(tensor, 0, n)[7];
    EXPECT_EQ(y.at(1, n), std::copysign(HUGE_VAL, scale)) << n;
    EXPECT_TRUE(std::isnan(y.at(2, n))) << n;
    EXPECT_TRUE(std::isfinite(y.at(0, n)) && std::isfinite(y.at(3, n))) << n;
  }
}

TEST(HostGemmTest, ARowsBitsDoNotDependOnItsPlace) {
  using Config = HostConfig<IntegerFormat(4), kFloat16>;
  Random random(8);
  const StandardTensor tensor = RandomTensor(SpecOf<Config>(1, 32), {1, 24, 70}, random);
  HostMatrix x = RandomMatrix(kBFloat16, 70, 70, random);
  for (int64_t k = 0; k < 70; ++k) x.set(66, k, x.at(0, k));
  HostMatrix y = PoisonedMatrix(kFloat32, 70, 24);
  HostGemm<Config>::Run(ArgsOf(tensor, x, y), 2);
  for (int64_t n = 0; n < 24; ++n) EXPECT_EQ(y.bits_at(0, n), y.bits_at(66, n));
}

TEST(HostGemmTest, IndexedRowsReadAndWriteTheirSlots) {
  using Config = HostConfig<IntegerFormat(4), kFloat16, ZeroPointKind::kInteger, RowMapping::kIndexed>;
  Random random(21);
  constexpr int64_t kExperts = 5;
  const StandardTensor tensor = RandomTensor(SpecOf<Config>(1, 16), {kExperts, 12, 40}, random);
  // Expert 1 has 70 slots (two tiles), 0 and 3 none, 2 has one, 4 has three; slot 10 is absent.
  const std::vector<int64_t> counts = {0, 70, 1, 0, 3};
  std::vector<uint32_t> slots;
  for (uint32_t slot = 0; slot < 75; ++slot) {
    if (slot != 10) slots.push_back(slot);
  }
  std::shuffle(slots.begin(), slots.end(), random);
  std::vector<int64_t> row_offsets(kExperts + 1);
  std::vector<int64_t> tile_offsets(kExperts + 1);
  for (int64_t e = 0; e < kExperts; ++e) {
    row_offsets[e + 1] = row_offsets[e] + counts[e];
    tile_offsets[e + 1] = tile_offsets[e] + (counts[e] + 63) / 64;
  }
  const HostMatrix x = RandomMatrix(kFloat16, 25, 40, random);
  HostMatrix y = PoisonedMatrix(kFloat32, 75, 12);
  GemmArgs args = ArgsOf(tensor, x, y);
  args.sorted_slots = slots.data();
  args.row_offsets = row_offsets.data();
  args.tile_offsets = tile_offsets.data();
  args.slots_per_input_row = 3;
  HostGemm<Config>::Run(args, 6);  // more than needed: 4
  for (int64_t e = 0; e < kExperts; ++e) {
    for (int64_t row = row_offsets[e]; row < row_offsets[e + 1]; ++row) {
      ExpectNearExact(tensor, e, x, y, slots[row] / 3, slots[row]);
    }
  }
  for (int64_t n = 0; n < 12; ++n) EXPECT_EQ(y.bits_at(10, n), 0xffffffffu);
}

}  // namespace
}  // namespace gemmd::testing
