// What a rank of tensor or expert parallelism gets.
#include "core/quant/rank_slice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/quant/reference.h"
#include "kernels/base/status.h"
#include "tests/support/random_tensor.h"

namespace gemmd {
namespace {

using testing::AnyTensor;
using ::testing::HasSubstr;

constexpr AxisSlice Rank(int64_t rank, int64_t size) {
  return {.rank = rank, .size = size, .range = {}};
}

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

std::vector<float> RankRowOf(const StandardTensor& tensor, int64_t expert, int64_t row) {
  std::vector<float> values(static_cast<size_t>(tensor.shape.k));
  DequantizeRowFloat32(tensor, expert, row, absl::MakeSpan(values));
  return values;
}

TEST(PartOfTest, RanksTakeEqualPartsInOrder) {
  for (int64_t rank = 0; rank < 4; ++rank) {
    const auto part = PartOf("rows", Rank(rank, 4), 24);
    ASSERT_TRUE(part.ok()) << part.status();
    EXPECT_EQ(part->begin, rank * 6);
    EXPECT_EQ(part->end, rank * 6 + 6);
  }
  const auto open = PartOf("rows", {.rank = 0, .size = 0, .range = {8, 0}}, 24);
  ASSERT_TRUE(open.ok()) << open.status();
  EXPECT_EQ(open->begin, 8);
  EXPECT_EQ(open->end, 24);
}

TEST(PartOfTest, NamesTheNumbersOfRanksThatWouldDo) {
  const auto uneven = PartOf("rows", Rank(0, 5), 24);
  EXPECT_EQ(ReasonOf(uneven.status()), "SHAPE_MISMATCH");
  EXPECT_THAT(MessageOf(uneven.status()),
              HasSubstr("legal numbers of ranks are 1, 2, 3, 4, 6, 8, 12, 24"));
  const auto cut = PartOf("columns", Rank(1, 4), 256, 128);
  EXPECT_EQ(ReasonOf(cut.status()), "SLICE_CUTS_GROUP");
  EXPECT_THAT(MessageOf(cut.status()), ::testing::EndsWith("legal numbers of ranks are 1, 2; an explicit range may be of whole groups, "
                                  "near this rank's: 128:256"));
  EXPECT_THAT(MessageOf(PartOf("rows", Rank(0, 11), 5040).status()),
              ::testing::EndsWith("15, 16, 18, 20 and more"));
  // One part needs no whole groups.
  EXPECT_TRUE(PartOf("columns", Rank(0, 1), 250, 128).ok());
}

TEST(PartOfTest, RefusesRanksAndRangesThatAreNotThere) {
  for (const AxisSlice& slice :
       {Rank(4, 4), Rank(-1, 4), Rank(1, 1), AxisSlice{.rank = 0, .size = 0, .range = {-1, 4}},
        AxisSlice{.rank = 0, .size = 0, .range = {0, 25}},
        AxisSlice{.rank = 0, .size = 0, .range = {24, 0}}}) {
    EXPECT_EQ(ReasonOf(PartOf("rows", slice, 24).status()), "SHAPE_MISMATCH");
  }
}

// q of 16 rows, k and v of 4 below each other: 4 ranks, k and v held by two of them each.
TEST(RankSliceTest, CutsEveryPartOfAFusedLayer) {
  const QuantSpec spec{.weight = kFloat8E4M3,
                       .scale = kFloat32,
                       .scale_block_n = 8,
                       .scale_block_k = 32,
                       .bias = kFloat32};
  const StandardTensor whole = AnyTensor(spec, {1, 24, 64}, 3);
  const SliceRequest request{
      .experts = {}, .rows = Rank(3, 4), .columns = {}, .row_parts = {{16, 1}, {4, 2}, {4, 2}}};
  const auto part = Slice(whole, request);
  ASSERT_TRUE(part.ok()) << part.status();
  ASSERT_TRUE(Validate(*part).ok()) << Validate(*part);
  const int64_t rows[] = {12, 13, 14, 15, 18, 19, 22, 23};
  ASSERT_EQ(part->shape.n, 8);
  for (int64_t i = 0; i < 8; ++i) {
    EXPECT_EQ(RankRowOf(*part, 0, i), RankRowOf(whole, 0, rows[i])) << i;
    EXPECT_EQ(Bias(*part, 0, i), Bias(whole, 0, rows[i])) << i;
  }
}

TEST(RankSliceTest, RefusesPartsThatDoNotFitTheLayer) {
  StandardTensor whole = AnyTensor({.weight = kBFloat16}, {1, 24, 32}, 3);
  const auto with = [&](std::vector<RowPart> parts) {
    return Slice(whole, SliceRequest{{}, Rank(0, 4), {}, std::move(parts)}).status();
  };
  EXPECT_TRUE(with({{12, 1}, {12, 1}}).ok());
  EXPECT_THAT(MessageOf(with({{12, 1}, {8, 1}})), HasSubstr("have 20 rows together"));
  EXPECT_THAT(MessageOf(with({{25, 1}, {-1, 1}})), HasSubstr("expected 1 to 24"));
  EXPECT_THAT(MessageOf(with({{12, 1}, {12, 3}})), HasSubstr("a divisor of the 4 ranks"));
  EXPECT_THAT(MessageOf(with({{12, 1}, {12, 0}})), HasSubstr("a divisor of the 4 ranks"));
  EXPECT_EQ(MessageOf(with({{16, 1}, {8, 3}})), "row_parts: 3 replicas, expected a divisor of the 4 ranks");
  EXPECT_THAT(MessageOf(with({{18, 1}, {6, 1}})),
              ::testing::EndsWith("4 ranks do not divide the 18 of part 0: legal numbers of ranks for all 2 parts are 1, 2, 3, 6"));
  EXPECT_THAT(MessageOf(with({{20, 1}, {3, 1}, {1, 2}})),
              ::testing::EndsWith("do not divide the 3 of part 1: legal numbers of ranks for all 3 parts are none"));
  EXPECT_THAT(MessageOf(with({{18, 1}, {6, 2}})),
              ::testing::EndsWith("legal numbers of ranks for all 2 parts are 2, 6"));
  const SliceRequest alone{{}, Rank(0, 1), {}, {{12, 1}, {8, 1}}};
  EXPECT_THAT(MessageOf(Slice(whole, alone).status()), HasSubstr("have 20 rows together"));
  whole.gate_up_interleaved = true;
  EXPECT_THAT(MessageOf(with({{12, 1}, {12, 1}})), HasSubstr("alternate"));
}

// gpt-oss's down_proj: 90 groups of 32.
TEST(PartOfTest, NamesARangeOfWholeGroupsNearTheRanks) {
  const auto message = [](int64_t rank, int64_t size, int64_t extent) {
    return MessageOf(PartOf("columns", Rank(rank, size), extent, 32).status());
  };
  EXPECT_THAT(message(0, 4, 2880), ::testing::EndsWith("near this rank's: 0:736"));
  EXPECT_THAT(message(1, 4, 2880), ::testing::EndsWith("near this rank's: 736:1472"));
  EXPECT_THAT(message(3, 4, 2880), ::testing::EndsWith("near this rank's: 2208:2880"));
  EXPECT_THAT(message(7, 8, 64), ::testing::EndsWith("near this rank's: none, there are fewer groups than ranks"));
}

TEST(SliceRequestTest, IsShownAsItIsWritten) {
  EXPECT_EQ(SliceRequest{}.Text(), "");
  const SliceRequest open{.experts = {}, .rows = Rank(1, 4), .columns = {.range = {128, 0}}, .row_parts = {}};
  EXPECT_EQ(open.Text(), "experts 0:, rows 1/4, columns 128:");
  const SliceRequest closed{.experts = {}, .rows = {}, .columns = {.range = {128, 256}}, .row_parts = {}};
  EXPECT_EQ(closed.Text(), "experts 0:, rows 0:, columns 128:256");
}

TEST(RankSliceTest, KeepsInterleavedGateAndUpTogether) {
  StandardTensor whole = AnyTensor({.weight = kBFloat16}, {2, 12, 32}, 3);
  whole.gate_up_interleaved = true;
  const auto part = Slice(whole, SliceRequest{{}, Rank(1, 3), {}, {}});
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(RankRowOf(*part, 1, 0), RankRowOf(whole, 1, 4));
  const auto cut = Slice(whole, SliceRequest{{}, Rank(1, 4), {}, {}});
  EXPECT_EQ(ReasonOf(cut.status()), "SLICE_CUTS_GROUP");
  EXPECT_THAT(MessageOf(cut.status()), HasSubstr("1, 2, 3, 6"));
}

// The groups of quantized activations start at the row's beginning on every rank.
TEST(RankSliceTest, DoesNotCutAGroupOfActivations) {
  const QuantSpec spec{.weight = kFloat8E4M3,
                       .scale = kFloat32,
                       .activation = kFloat8E4M3,
                       .activation_scale = ActivationScaleKind::kDynamicGroup,
                       .activation_group = 64};
  const StandardTensor whole = AnyTensor(spec, {1, 8, 192}, 3);
  EXPECT_EQ(ReasonOf(Slice(whole, SliceRequest{{}, {}, Rank(0, 2), {}}).status()),
            "SLICE_CUTS_GROUP");
  EXPECT_TRUE(Slice(whole, SliceRequest{{}, {}, Rank(0, 3), {}}).ok());
}

TEST(RankSliceTest, TextTellsRequestsApart) {
  const SliceRequest requests[] = {{{}, {}, {}, {}},
                                   {Rank(1, 2), {}, {}, {}},
                                   {{}, Rank(1, 2), {}, {}},
                                   {{}, {}, Rank(1, 2), {}},
                                   {{}, {}, {.rank = 0, .size = 0, .range = {1, 2}}, {}},
                                   {{}, Rank(1, 2), {}, {{8, 1}, {8, 1}}},
                                   {{}, Rank(1, 2), {}, {{8, 1}, {8, 2}}}};
  for (const SliceRequest& a : requests) {
    for (const SliceRequest& b : requests) EXPECT_EQ(a.Text() == b.Text(), &a == &b);
  }
  EXPECT_EQ(requests[0].Text(), "");
}

}  // namespace
}  // namespace gemmd
