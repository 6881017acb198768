// Factors of the columns of x.
#include "core/quant/input_scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/quant/combine.h"
#include "core/quant/rank_slice.h"
#include "core/quant/reference.h"
#include "kernels/base/status.h"
#include "tests/support/random_tensor.h"

namespace gemmd {
namespace {

using testing::Append;
using ::testing::HasSubstr;
using testing::RandomTensor;

constexpr LayerShape kShape{2, 8, 64};
constexpr QuantSpec kInt4{.weight = IntegerFormat(4), .scale = kFloat32, .scale_block_k = 32};

// `factor` of (expert, column).
template <typename Factor>
StandardTensor WithFactors(const QuantSpec& spec, Factor factor) {
  StandardTensor tensor = RandomTensor(spec, kShape, 7, testing::Values::kAny);
  tensor.has_input_scale = true;
  for (int64_t expert = 0; expert < kShape.experts; ++expert) {
    for (int64_t k = 0; k < kShape.k; ++k) Append(tensor.input_scale, float{factor(expert, k)});
  }
  EXPECT_TRUE(Validate(tensor).ok()) << Validate(tensor);
  return tensor;
}

float PerGroup(int64_t expert, int64_t k) { return k < 32 ? 0.75f : 2.5f + expert; }
float PerColumn(int64_t, int64_t k) { return 1 + k / 64.0f; }

std::vector<double> RowOf(const StandardTensor& tensor, int64_t expert, int64_t row) {
  std::vector<double> values(static_cast<size_t>(tensor.shape.k));
  DequantizeRow(tensor, expert, row, absl::MakeSpan(values));
  return values;
}

TEST(InputScaleTest, MultipliesEachColumnOfX) {
  const StandardTensor tensor = WithFactors(kInt4, PerColumn);
  std::vector<double> x(64, 3);
  MultiplyInputScale(tensor, 1, absl::MakeSpan(x));
  for (int64_t k = 0; k < 64; ++k) EXPECT_EQ(x[k], 3 * (1 + k / 64.0)) << k;
}

TEST(InputScaleTest, QuantizedXWasMultipliedBeforeItWasQuantized) {
  const StandardTensor weights_only = WithFactors(kInt4, PerColumn);
  QuantSpec spec = kInt4;
  spec.activation = kInt8;
  spec.activation_scale = ActivationScaleKind::kDynamicToken;
  const StandardTensor both = WithFactors(spec, PerColumn);
  EXPECT_TRUE(MultipliesInput(weights_only, kBFloat16));
  EXPECT_TRUE(MultipliesInput(weights_only, kFloat8E4M3));
  EXPECT_TRUE(MultipliesInput(both, kFloat32));
  EXPECT_FALSE(MultipliesInput(both, kInt8));
  EXPECT_FALSE(MultipliesInput(RandomTensor(kInt4, kShape, 7), kBFloat16));
}

TEST(InputScaleTest, FoldsExactlyWhereAGroupHasOneFactor) {
  const StandardTensor tensor = WithFactors(kInt4, PerGroup);
  const auto folded = FoldInputScale(tensor);
  ASSERT_TRUE(folded.ok()) << folded.status();
  ASSERT_TRUE(Validate(*folded).ok()) << Validate(*folded);
  EXPECT_FALSE(folded->has_input_scale);
  for (int64_t expert = 0; expert < 2; ++expert) {
    for (int64_t row = 0; row < 8; ++row) {
      std::vector<double> expected = RowOf(tensor, expert, row);
      for (int64_t k = 0; k < 64; ++k) expected[k] *= PerGroup(expert, k);
      EXPECT_EQ(RowOf(*folded, expert, row), expected);
    }
  }
}

TEST(InputScaleTest, FoldsByTheGroupIndex) {
  QuantSpec spec = kInt4;
  spec.has_group_index = true;
  StandardTensor tensor = WithFactors(spec, PerColumn);
  const auto group = [&](int64_t expert, int64_t k) {
    int32_t value;
    std::memcpy(&value, tensor.group_index.data() + (expert * 64 + k) * 4, 4);
    return value;
  };
  tensor.input_scale.clear();
  for (int64_t expert = 0; expert < 2; ++expert) {
    for (int64_t k = 0; k < 64; ++k) Append(tensor.input_scale, group(expert, k) == 0 ? 0.5f : 3.f);
  }
  const auto folded = FoldInputScale(tensor);
  ASSERT_TRUE(folded.ok()) << folded.status();
  std::vector<double> expected = RowOf(tensor, 1, 3);
  for (int64_t k = 0; k < 64; ++k) expected[k] *= group(1, k) == 0 ? 0.5 : 3;
  EXPECT_EQ(RowOf(*folded, 1, 3), expected);
}

TEST(InputScaleTest, RefusesToFoldInexactly) {
  const auto message = [](const StandardTensor& tensor) {
    const auto folded = FoldInputScale(tensor);
    EXPECT_EQ(folded.status().code(), absl::StatusCode::kFailedPrecondition);
    return std::string(folded.status().message());
  };
  EXPECT_THAT(message(WithFactors(kInt4, PerColumn)), HasSubstr("column 1 has 1.01562"));
  QuantSpec narrow = kInt4;
  narrow.scale = kBFloat16;  // nine significant bits do not fit into eight
  EXPECT_THAT(message(WithFactors(narrow, [](int64_t, int64_t) { return 257.0f; })),
              HasSubstr("no number of the scales' type"));
  QuantSpec exponents{.weight = kFloat4E2M1, .scale = kFloat8E8M0, .scale_block_k = 32};
  EXPECT_THAT(message(WithFactors(exponents, [](int64_t, int64_t) { return -2.0f; })),
              HasSubstr("no number of the scales' type"));
  EXPECT_TRUE(FoldInputScale(WithFactors(exponents, [](int64_t, int64_t) { return 2.0f; })).ok());
  EXPECT_THAT(message(WithFactors({.weight = kBFloat16}, PerGroup)), HasSubstr("no scales"));
  QuantSpec quantized = kInt4;
  quantized.activation = kInt8;
  quantized.activation_scale = ActivationScaleKind::kDynamicToken;
  EXPECT_THAT(message(WithFactors(quantized, PerGroup)), HasSubstr("multiplied before"));
}

TEST(InputScaleTest, IsPartOfTheDigestAndOfSlices) {
  const StandardTensor tensor = WithFactors(kInt4, PerColumn);
  StandardTensor without = tensor;
  without.has_input_scale = false;
  without.input_scale.clear();
  StandardTensor other = tensor;
  other.input_scale[0] ^= std::byte{1};
  EXPECT_NE(Digest(tensor), Digest(without));
  EXPECT_NE(Digest(tensor), Digest(other));
  const SliceRequest second{{}, {}, {.rank = 1, .size = 2, .range = {}}, {}};
  const auto part = Slice(tensor, second);
  ASSERT_TRUE(part.ok()) << part.status();
  std::vector<double> x(32, 1);
  MultiplyInputScale(*part, 1, absl::MakeSpan(x));
  for (int64_t k = 0; k < 32; ++k) EXPECT_EQ(x[k], PerColumn(1, 32 + k)) << k;
}

TEST(InputScaleTest, PartsOfALayerShareIt) {
  const StandardTensor a = WithFactors(kInt4, PerColumn);
  StandardTensor b = WithFactors(kInt4, PerGroup);
  EXPECT_TRUE(ConcatenateRows({a, a}).ok());
  EXPECT_EQ(ReasonOf(ConcatenateRows({a, b}).status()), "PARTS_DIFFER");
  b.has_input_scale = false;  // as if it were 1
  b.input_scale.clear();
  EXPECT_EQ(ReasonOf(ConcatenateRows({a, b}).status()), "PARTS_DIFFER");
  const auto stack = StackExperts({a, b});  // every expert has its own
  ASSERT_TRUE(stack.ok()) << stack.status();
  ASSERT_TRUE(Validate(*stack).ok()) << Validate(*stack);
  std::vector<double> x(64, 1);
  MultiplyInputScale(*stack, 2, absl::MakeSpan(x));
  EXPECT_THAT(x, ::testing::Each(1.0));
}

TEST(InputScaleTest, ItsSizeIsChecked) {
  StandardTensor tensor = WithFactors(kInt4, PerColumn);
  tensor.input_scale.resize(tensor.input_scale.size() - 4);
  EXPECT_EQ(ReasonOf(Validate(tensor)), "SHAPE_MISMATCH");
  EXPECT_THAT(std::string(Validate(tensor).message()), HasSubstr("input_scale has 508 bytes"));
}

// What a GPU does with x follows from it: nothing where the factors fold.
TEST(InputScaleTest, TraitsAreThoseOfTheFoldedLayer) {
  const StandardTensor folds = WithFactors(kInt4, PerGroup);
  EXPECT_EQ(TraitsOf(folds), LayerTraits());
  EXPECT_EQ(TraitsOf(*FoldInputScale(folds)), LayerTraits());
  EXPECT_EQ(TraitsOf(WithFactors(kInt4, PerColumn)), (LayerTraits{.has_input_scale = true}));
  StandardTensor declares = folds;
  declares.spec.activation = kFloat8E4M3;
  EXPECT_EQ(TraitsOf(declares),
            (LayerTraits{.has_input_scale = true, .declares_activations = true}));
  StandardTensor encodes = folds;
  encodes.encoding.format = kInt8;
  EXPECT_EQ(TraitsOf(encodes),
            (LayerTraits{.has_input_scale = true, .declares_activations = true}));
  declares.has_input_scale = false;
  EXPECT_EQ(TraitsOf(declares), (LayerTraits{.declares_activations = true}));
}

}  // namespace
}  // namespace gemmd
