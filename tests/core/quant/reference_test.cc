// DequantizeRow against the formula of quant_spec.h written out element by element.
#include "core/quant/reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/random_tensor.h"

namespace gemmd {
namespace {

using testing::AnyTensor;
using testing::Append;
using testing::AppendNumber;

template <typename T>
T At(const Buffer& buffer, int64_t index) {
  T value;
  std::memcpy(&value, buffer.data() + index * sizeof(T), sizeof(T));
  return value;
}

double NumberAt(const NumberFormat& format, const Buffer& buffer, int64_t index) {
  if (format.bits == 8) return DecodeNumber(format, At<uint8_t>(buffer, index));
  if (format.bits == 16) return DecodeNumber(format, At<uint16_t>(buffer, index));
  return DecodeNumber(format, At<uint32_t>(buffer, index));
}

uint32_t CodeAt(const StandardTensor& t, int64_t row, int64_t k) {
  uint32_t code = 0;
  for (int bit = 0; bit < t.spec.weight.bits; ++bit) {
    const int64_t position = row * t.spec.RowWords(t.shape.k) * 32 + k * t.spec.weight.bits + bit;
    const uint32_t byte = static_cast<uint32_t>(t.codes[position / 8]);
    code |= ((byte >> (position % 8)) & 1u) << bit;
  }
  return code;
}

struct Element {
  double value;
  double scale = 1;
  double secondary = 1;
};

Element ElementAt(const StandardTensor& t, int64_t e, int64_t n, int64_t k) {
  const QuantSpec& spec = t.spec;
  const int64_t block_k = spec.scale_block_k == 0 ? t.shape.k : spec.scale_block_k;
  const int64_t column =
      spec.has_group_index ? At<int32_t>(t.group_index, e * t.shape.k + k) : k / block_k;
  const int64_t row = spec.scale_block_n == 0 ? 0 : n / spec.scale_block_n;
  const int64_t grid = (e * spec.ScaleRows(t.shape.n) + row) * t.scale_columns + column;
  Element element{DecodeNumber(spec.weight, CodeAt(t, e * t.shape.n + n, k))};
  if (spec.zero_point == ZeroPointKind::kInteger) {
    element.value -= At<int16_t>(t.zero_points, grid);
  } else if (spec.zero_point == ZeroPointKind::kFloat) {
    element.value -= At<float>(t.zero_points, grid);
  } else if (spec.weight.kind == NumberKind::kInteger) {
    element.value -= std::ldexp(1, spec.weight.bits - 1);
  }
  if (spec.scale.present()) element.scale = NumberAt(spec.scale, t.scales, grid);
  if (spec.secondary_scale == SecondaryScaleKind::kTensor) {
    element.secondary = At<float>(t.secondary_scales, e);
  } else if (spec.secondary_scale == SecondaryScaleKind::kChannel) {
    element.secondary = At<float>(t.secondary_scales, e * t.shape.n + n);
  }
  return element;
}

void ExpectFormula(const StandardTensor& t) {
  ASSERT_TRUE(Validate(t).ok()) << Validate(t);
  std::vector<double> exact(t.shape.k);
  std::vector<float> rounded(t.shape.k);
  for (int64_t e = 0; e < t.shape.experts; ++e) {
    for (int64_t n = 0; n < t.shape.n; ++n) {
      DequantizeRow(t, e, n, absl::MakeSpan(exact));
      DequantizeRowFloat32(t, e, n, absl::MakeSpan(rounded));
      for (int64_t k = 0; k < t.shape.k; ++k) {
        const Element element = ElementAt(t, e, n, k);
        ASSERT_EQ(exact[k], element.value * (element.scale * element.secondary))
            << e << " " << n << " " << k;
        const auto factor = static_cast<float>(element.scale * element.secondary);
        ASSERT_EQ(rounded[k], static_cast<float>(element.value * factor))
            << e << " " << n << " " << k;
      }
    }
  }
}

std::vector<NumberFormat> ReferenceFormats() {
  std::vector<NumberFormat> formats = {kFloat16,    kBFloat16,
                                       kFloat32,    kFloat8E4M3,
                                       kFloat8E5M2, FloatFormat(3, 4, SpecialValues::kIeee)};
  for (int bits = 1; bits <= 8; ++bits) formats.push_back(IntegerFormat(bits));
  for (int exponent = 0; exponent <= 7; ++exponent) {
    for (int mantissa = 0; 1 + exponent + mantissa <= 8; ++mantissa) {
      if (exponent + mantissa > 0) formats.push_back(FloatFormat(exponent, mantissa));
    }
  }
  return formats;
}

const NumberFormat kScaleFormats[] = {kNoFormat,   kFloat16,    kBFloat16,  kFloat32,
                                      kFloat8E4M3, kFloat8E5M2, kFloat8E8M0};

struct Granularity {
  int64_t block_n;
  int64_t block_k;
};
// Tensor, channel, groups (the last one partial), blocks (partial at both edges).
const Granularity kGranularities[] = {{0, 0}, {1, 0}, {1, 16}, {4, 32}, {0, 24}};

TEST(ReferenceTest, FollowsTheFormulaForEveryWeightScaleAndGranularity) {
  uint32_t seed = 0;
  for (const NumberFormat& weight : ReferenceFormats()) {
    for (const NumberFormat& scale : kScaleFormats) {
      for (const Granularity& granularity : kGranularities) {
        QuantSpec spec{.weight = weight,
                       .scale = scale,
                       .scale_block_n = granularity.block_n,
                       .scale_block_k = granularity.block_k};
        SCOPED_TRACE(::testing::Message()
                     << "bits " << int{weight.bits} << " exponent " << int{weight.exponent_bits}
                     << " scale bits " << int{scale.bits} << " block " << spec.scale_block_n << "x"
                     << spec.scale_block_k);
        ExpectFormula(AnyTensor(spec, {2, 5, 37}, ++seed));
      }
    }
  }
}

TEST(ReferenceTest, TakesOffIntegerAndFloatZeroPoints) {
  for (int bits = 1; bits <= 8; ++bits) {
    for (const ZeroPointKind kind : {ZeroPointKind::kInteger, ZeroPointKind::kFloat}) {
      QuantSpec spec{.weight = IntegerFormat(bits),
                     .scale = kFloat16,
                     .scale_block_k = 16,
                     .zero_point = kind};
      ExpectFormula(AnyTensor(spec, {2, 3, 45}, bits));
      spec.has_group_index = true;
      ExpectFormula(AnyTensor(spec, {2, 3, 45}, bits));
    }
  }
}

TEST(ReferenceTest, MultipliesBySecondaryScales) {
  for (const auto kind : {SecondaryScaleKind::kTensor, SecondaryScaleKind::kChannel}) {
    QuantSpec spec{
        .weight = kFloat4E2M1, .scale = kFloat8E4M3, .scale_block_k = 16, .secondary_scale = kind};
    ExpectFormula(AnyTensor(spec, {3, 4, 48}, 7));
  }
}

TEST(ReferenceTest, UsesTheGroupIndexEvenWithAGroupCountOfItsOwn) {
  QuantSpec spec{
      .weight = IntegerFormat(4), .scale = kFloat32, .scale_block_k = 32, .has_group_index = true};
  StandardTensor tensor = AnyTensor(spec, {1, 2, 64}, 3);
  tensor.scale_columns = 3;  // two by the group size
  tensor.scales.clear();
  for (float scale : {1.f, 2.f, 4.f, 8.f, 16.f, 32.f}) Append(tensor.scales, scale);
  const int32_t last_group = 2;
  std::memcpy(tensor.group_index.data() + 5 * sizeof(last_group), &last_group, sizeof(last_group));
  ExpectFormula(tensor);
}

TEST(ReferenceTest, KeepsSubnormalsAndSignedZeros) {
  StandardTensor tensor{.spec = {.weight = kFloat4E2M1, .scale = kFloat8E8M0, .scale_block_k = 32},
                        .shape = {1, 1, 8}};
  Append(tensor.codes, uint32_t{0x00000981});  // 0.5, -0, -0.5, 0 ...
  Append(tensor.scales, uint8_t{0});
  std::vector<float> row(8);
  DequantizeRowFloat32(tensor, 0, 0, absl::MakeSpan(row));
  EXPECT_EQ(row[0], std::ldexp(1.f, -128));
  EXPECT_TRUE(row[1] == 0 && std::signbit(row[1]));
  EXPECT_EQ(row[2], -std::ldexp(1.f, -128));
  EXPECT_TRUE(row[3] == 0 && !std::signbit(row[3]));
}

TEST(ReferenceTest, GivesNanForANanScaleAndHonoursNegativeScales) {
  StandardTensor tensor{.spec = {.weight = IntegerFormat(8), .scale = kFloat32, .scale_block_k = 4},
                        .shape = {1, 1, 8},
                        .scale_columns = 2};
  Append(tensor.codes, uint32_t{0x81818181});
  Append(tensor.codes, uint32_t{0x81818181});
  Append(tensor.scales, -2.0f);
  Append(tensor.scales, std::numeric_limits<float>::quiet_NaN());
  std::vector<double> row(8);
  DequantizeRow(tensor, 0, 0, absl::MakeSpan(row));
  EXPECT_EQ(row[0], -2);
  EXPECT_TRUE(std::isnan(row[4]));
}

TEST(ReferenceTest, ReadsTheBiasInItsOwnFormat) {
  for (const NumberFormat& bias : {kFloat16, kBFloat16, kFloat32}) {
    StandardTensor tensor{.spec = {.weight = kFloat8E4M3, .bias = bias}, .shape = {2, 2, 4}};
    for (const double value : {1.0, -2.0, 0.5, 4.0}) AppendNumber(tensor.bias, bias, value);
    EXPECT_EQ(Bias(tensor, 0, 1), -2);
    EXPECT_EQ(Bias(tensor, 1, 1), 4);
  }
  EXPECT_EQ(Bias(StandardTensor{}, 0, 0), 0);
}

}  // namespace
}  // namespace gemmd
