#include "kernels/select/tuning_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace gemmd {
namespace {

using ::testing::HasSubstr;

constexpr LayerShape kShape = {1, 8192, 8192};
constexpr ElementType kType = ElementType::kBFloat16;

QuantSpec Spec() {
  QuantSpec spec;
  spec.weight = IntegerFormat(4);
  spec.scale = kBFloat16;
  spec.scale_block_k = 128;
  return spec;
}

// A candidate that the model does not take.
MeasuredPoint PointAt(int64_t m, size_t candidate = 2) {
  MeasuredPoint point;
  point.m = m;
  point.tiling = TilingOf(Sm90CandidatesAt(Spec(), kShape, kType, m).at(candidate));
  point.ns = 1000.0 * static_cast<double>(m);
  point.model_choice_ns = 2000.0 * static_cast<double>(m);
  return point;
}

std::vector<MeasuredPoint> PointsAt(const std::vector<int64_t>& rows) {
  std::vector<MeasuredPoint> points;
  for (const int64_t m : rows) points.push_back(PointAt(m));
  return points;
}

// What serves M.
const TunedChoice& ChoiceAt(const std::vector<TunedChoice>& choices, int64_t m) {
  size_t i = 0;
  while (choices.at(i).choice.largest_m < m) ++i;
  return choices[i];
}

Sm90Tiling ModelAt(int64_t m) {
  return TilingOf(Sm90CandidatesAt(Spec(), kShape, kType, m).front());
}

TEST(TuningTableTest, NothingMeasuredIsTheModel) {
  const std::vector<Sm90Choice> model = ChooseSm90(Spec(), kShape, kType);
  const std::vector<TunedChoice> tuned = ChooseTuned(Spec(), kShape, kType, {});
  ASSERT_EQ(tuned.size(), model.size());
  for (size_t i = 0; i < model.size(); ++i) {
    EXPECT_EQ(tuned[i].choice.largest_m, model[i].largest_m);
    EXPECT_EQ(TilingOf(tuned[i].choice), TilingOf(model[i]));
    EXPECT_FALSE(tuned[i].measured.has_value());
  }
}

TEST(TuningTableTest, TheDefaultRowsDecideEveryM) {
  const auto choices = ChooseTuned(Spec(), kShape, kType, PointsAt(DefaultTuningRows()));
  for (const int64_t m : {1, 2, 8, 9, 16, 17, 33, 63, 64, 65, 200, 513, 4096, 4097, 100000}) {
    const TunedChoice& choice = ChoiceAt(choices, m);
    ASSERT_TRUE(choice.measured.has_value()) << m;
    EXPECT_GE(choice.measured->m, std::min<int64_t>(m, 4096));
    EXPECT_LE(choice.measured->m, std::max<int64_t>(2 * m, 8));
    EXPECT_EQ(TilingOf(choice.choice), choice.measured->tiling);
  }
}

// Every set of default rows, and one row that is none of them.
TEST(TuningTableTest, RangesAreAscendingWithoutGapsAndMeasuredExactlyWhereTheyShould) {
  const std::vector<int64_t> rows = {1, 8, 16, 32, 64, 100, 128, 4096};
  for (unsigned set = 0; set < 1u << rows.size(); ++set) {
    std::vector<int64_t> measured;
    for (size_t i = 0; i < rows.size(); ++i) {
      if ((set >> i & 1) != 0) measured.push_back(rows[i]);
    }
    const std::vector<MeasuredPoint> points = PointsAt(measured);
    const std::vector<TunedChoice> choices = ChooseTuned(Spec(), kShape, kType, points);
    int64_t before = 0;
    for (const TunedChoice& choice : choices) {
      EXPECT_GT(choice.choice.largest_m, before);
      before = choice.choice.largest_m;
    }
    EXPECT_GE(before, 65535 * 8) << "the last range ends where a grid does";
    for (int64_t m = 1; m <= 5000; m += m < 140 ? 1 : 61) {
      // The point that speaks for m, by the rule in the header.
      const MeasuredPoint* speaker = nullptr;
      for (size_t i = 0; i < points.size(); ++i) {
        if (FirstRowOf(points, i) <= m && m <= points[i].m) speaker = &points[i];
      }
      if (!points.empty() && points.back().m == 4096 && m > 4096) speaker = &points.back();
      const TunedChoice& choice = ChoiceAt(choices, m);
      ASSERT_EQ(choice.measured.has_value(), speaker != nullptr) << "M = " << m << ", set " << set;
      EXPECT_EQ(TilingOf(choice.choice), speaker != nullptr ? speaker->tiling : ModelAt(m))
          << "M = " << m << ", set " << set;
    }
  }
}

TEST(TuningTableTest, APointSpeaksForRowsDownToTheNextOne) {
  EXPECT_EQ(FirstRowOf(PointsAt({1, 8}), 1), 2);
  EXPECT_EQ(FirstRowOf(PointsAt({64}), 0), 33);
  EXPECT_EQ(FirstRowOf(PointsAt({16, 64}), 1), 33) << "not for those that have a row of their own";
  EXPECT_EQ(FirstRowOf(PointsAt({1000}), 0), 513);
  EXPECT_EQ(FirstRowOf(PointsAt({600, 1000}), 1), 601);
  EXPECT_EQ(FirstRowOf(PointsAt({1}), 0), 1);
}

TEST(TuningTableTest, AKernelThatIsNoCandidateLeavesItsRangeToTheModel) {
  std::vector<MeasuredPoint> points = PointsAt({32, 64, 128});
  points[1].tiling.tokens = 7;
  const auto choices = ChooseTuned(Spec(), kShape, kType, points);
  EXPECT_TRUE(ChoiceAt(choices, 20).measured.has_value());
  EXPECT_FALSE(ChoiceAt(choices, 40).measured.has_value());
  EXPECT_FALSE(ChoiceAt(choices, 64).measured.has_value());
  EXPECT_EQ(ChoiceAt(choices, 65).measured->m, 128);
}

TEST(TuningTableTest, MoreRowsThanAGridCountsAreLeftOut) {
  MeasuredPoint beyond = PointAt(64);
  beyond.m = int64_t{1} << 40;
  for (const TunedChoice& choice : ChooseTuned(Spec(), kShape, kType, {beyond})) {
    EXPECT_FALSE(choice.measured.has_value());
  }
}

TEST(TuningTableTest, SpecsThatTakeOtherKernelsHaveOtherTexts) {
  std::set<std::string> texts = {SpecText(Spec())};
  const auto expect_other = [&](auto change) {
    QuantSpec spec = Spec();
    change(spec);
    EXPECT_TRUE(texts.insert(SpecText(spec)).second) << SpecText(spec);
  };
  expect_other([](QuantSpec& s) { s.weight = IntegerFormat(8); });
  expect_other([](QuantSpec& s) { s.weight = kFloat8E4M3; });
  expect_other([](QuantSpec& s) { s.weight = FloatFormat(4, 3); });
  expect_other([](QuantSpec& s) { s.weight = FloatFormat(4, 3, SpecialValues::kIeee); });
  expect_other([](QuantSpec& s) { s.scale = kFloat16; });
  expect_other([](QuantSpec& s) { s.scale_block_n = 128; });
  expect_other([](QuantSpec& s) { s.scale_block_k = 64; });
  expect_other([](QuantSpec& s) { s.zero_point = ZeroPointKind::kInteger; });
  expect_other([](QuantSpec& s) { s.zero_point = ZeroPointKind::kFloat; });
  expect_other([](QuantSpec& s) { s.secondary_scale = SecondaryScaleKind::kTensor; });
  expect_other([](QuantSpec& s) { s.secondary_scale = SecondaryScaleKind::kChannel; });
  expect_other([](QuantSpec& s) { s.has_group_index = true; });
  expect_other([](QuantSpec& s) { s.activation = kInt8; });
  expect_other([](QuantSpec& s) {
    s.activation = kInt8;
    s.activation_scale = ActivationScaleKind::kDynamicToken;
  });
  expect_other([](QuantSpec& s) {
    s.activation = kInt8;
    s.activation_scale = ActivationScaleKind::kDynamicGroup;
    s.activation_group = 128;
  });
  QuantSpec bias = Spec();
  bias.bias = kFloat16;
  EXPECT_EQ(SpecText(bias), SpecText(Spec()));
  EXPECT_EQ(SpecText(Spec()),
            "int4, scale bf16 per 1x128, zero points none, secondary none, activation none");
}

TEST(TuningTableTest, TellsTimesAndWhereTheyComeFrom) {
  MeasuredPoint point = PointAt(64);
  point.ns = 12344;
  point.model_choice_ns = 13100;
  const TunedChoice measured{{}, point};
  EXPECT_EQ(ChosenBy(measured, 1980),
            "measured 12.34 us at M = 64 (the model's kernel: 13.10 us)");
  TunedChoice modelled;
  EXPECT_EQ(ChosenBy(modelled, 1980), "the model");
  modelled.choice.model_cycles = 19800;
  EXPECT_EQ(ChosenBy(modelled, 1980), "the model, which expects 10.00 us");
  EXPECT_EQ(ChosenBy(modelled, 0), "the model");
}

}  // namespace
}  // namespace gemmd
