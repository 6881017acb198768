// Slices of layers hold the weights of the layer.
#include "core/quant/slice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/quant/reference.h"
#include "kernels/base/status.h"
#include "tests/support/random_tensor.h"

namespace gemmd {
namespace {

using testing::AnyTensor;

constexpr LayerShape kSliceShape{3, 24, 96};

std::vector<float> SliceRowOf(const StandardTensor& tensor, int64_t expert, int64_t row) {
  std::vector<float> values(tensor.shape.k);
  DequantizeRowFloat32(tensor, expert, row, absl::MakeSpan(values));
  return values;
}

void ExpectPartOf(const StandardTensor& part, const StandardTensor& whole,
                  const LayerSlice& slice) {
  ASSERT_TRUE(Validate(part).ok()) << Validate(part);
  for (int64_t expert = 0; expert < part.shape.experts; ++expert) {
    for (int64_t row = 0; row < part.shape.n; ++row) {
      const auto full = SliceRowOf(whole, slice.experts.begin + expert, slice.rows.begin + row);
      const auto first = full.begin() + slice.columns.begin;
      EXPECT_EQ(SliceRowOf(part, expert, row), std::vector<float>(first, first + part.shape.k));
      if (slice.columns.begin == 0) {
        EXPECT_EQ(Bias(part, expert, row),
                  Bias(whole, slice.experts.begin + expert, slice.rows.begin + row));
      }
    }
  }
}

std::vector<QuantSpec> SliceSpecs() {
  return {
      {.weight = IntegerFormat(3),
       .scale = kFloat16,
       .scale_block_k = 32,
       .zero_point = ZeroPointKind::kInteger,
       .bias = kBFloat16},
      {.weight = kFloat8E4M3, .scale = kFloat32, .scale_block_n = 8, .scale_block_k = 32},
      {.weight = kFloat8E4M3, .scale = kFloat32, .scale_block_n = 0},
      {.weight = kFloat4E2M1,
       .scale = kFloat8E4M3,
       .scale_block_k = 16,
       .secondary_scale = SecondaryScaleKind::kChannel},
      {.weight = kFloat4E2M1,
       .scale = kFloat8E4M3,
       .scale_block_k = 16,
       .secondary_scale = SecondaryScaleKind::kTensor,
       .activation = kFloat8E4M3,
       .activation_scale = ActivationScaleKind::kStaticTensor},
      {.weight = IntegerFormat(4), .scale = kFloat16, .scale_block_k = 32, .has_group_index = true},
      {.weight = kBFloat16}};
}

TEST(SliceTest, HoldsTheWeightsOfItsPart) {
  const LayerSlice slices[] = {{},
                               {.experts = {1, 3}, .rows = {}, .columns = {}},
                               {.experts = {}, .rows = {8, 16}, .columns = {}},
                               {.experts = {}, .rows = {6, 13}, .columns = {}},
                               {.experts = {}, .rows = {}, .columns = {0, 32}},
                               {.experts = {0, 1}, .rows = {12, 24}, .columns = {64, 96}}};
  for (const QuantSpec& spec : SliceSpecs()) {
    const StandardTensor whole = AnyTensor(spec, kSliceShape, 5);
    for (const LayerSlice& slice : slices) {
      const auto part = Slice(whole, slice);
      ASSERT_TRUE(part.ok()) << part.status();
      ExpectPartOf(*part, whole, slice);
    }
    EXPECT_EQ(Digest(*Slice(whole, LayerSlice{})), Digest(whole));
  }
}

TEST(SliceTest, RefusesToCutAGroupAndNamesTheLegalSizes) {
  const StandardTensor whole = AnyTensor(SliceSpecs()[0], kSliceShape, 5);
  const auto part = Slice(whole, LayerSlice{.experts = {}, .rows = {}, .columns = {0, 48}});
  EXPECT_EQ(ReasonOf(part.status()), "SLICE_CUTS_GROUP");
  EXPECT_THAT(std::string(part.status().message()), ::testing::HasSubstr("multiples of 32"));
}

// One group of all K says so by the size 0, or by one of K or more.
TEST(SliceTest, CutsTheColumnsOfOneGroupAnywhere) {
  QuantSpec spec{.weight = IntegerFormat(4), .scale = kFloat16, .zero_point = ZeroPointKind::kInteger};
  const LayerSlice slice{.experts = {}, .rows = {}, .columns = {24, 72}};
  for (const int64_t group : {int64_t{0}, kSliceShape.k, kSliceShape.k + 32}) {
    spec.scale_block_k = group;
    const StandardTensor whole = AnyTensor(spec, kSliceShape, 5);
    const auto part = Slice(whole, slice);
    ASSERT_TRUE(part.ok()) << part.status();
    ExpectPartOf(*part, whole, slice);
  }
}

TEST(SliceTest, KeepsGateAndUpRowsTogether) {
  StandardTensor whole = AnyTensor({.weight = kBFloat16}, kSliceShape, 5);
  whole.gate_up_interleaved = true;
  EXPECT_EQ(
      ReasonOf(Slice(whole, LayerSlice{.experts = {}, .rows = {3, 8}, .columns = {}}).status()),
      "SLICE_CUTS_GROUP");
  EXPECT_TRUE(Slice(whole, LayerSlice{.experts = {}, .rows = {4, 8}, .columns = {}}).ok());
}

TEST(SliceTest, RefusesRangesOutside) {
  const StandardTensor whole = AnyTensor({.weight = kBFloat16}, kSliceShape, 5);
  for (const Range& range : {Range{-1, 4}, Range{4, 4}, Range{5, 4}, Range{0, 25}, Range{24, 0}}) {
    EXPECT_EQ(
        ReasonOf(Slice(whole, LayerSlice{.experts = {}, .rows = range, .columns = {}}).status()),
        "SHAPE_MISMATCH");
  }
}

}  // namespace
}  // namespace gemmd
