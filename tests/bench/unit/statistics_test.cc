#include "tests/bench/host/statistics.h"

#include <gtest/gtest.h>

namespace gemmd::bench {
namespace {

TEST(StatisticsTest, MedianOfAnOddCountIsTheMiddleSample) {
  const Summary summary = Summarize({5, 1, 9, 3, 7});
  EXPECT_EQ(summary.samples, 5);
  EXPECT_EQ(summary.median, 5);
  EXPECT_EQ(summary.min, 1);
  EXPECT_EQ(summary.max, 9);
}

TEST(StatisticsTest, MedianOfAnEvenCountLiesHalfWay) {
  EXPECT_EQ(Summarize({4, 1, 2, 3}).median, 2.5);
}

TEST(StatisticsTest, QuantilesAreLinearBetweenNeighbours) {
  const Summary summary = Summarize({0, 10, 20, 30, 40, 50});
  EXPECT_EQ(summary.p10, 5);
  EXPECT_EQ(summary.p90, 45);
}

TEST(StatisticsTest, OneSampleIsEverything) {
  const Summary summary = Summarize({2.5});
  EXPECT_EQ(summary.median, 2.5);
  EXPECT_EQ(summary.p10, 2.5);
  EXPECT_EQ(summary.p90, 2.5);
}

TEST(StatisticsTest, NoSamplesAreMarkedAsNotMeasured) { EXPECT_EQ(Summarize({}).samples, 0); }

TEST(StatisticsTest, AnOutlierDoesNotMoveTheMedian) {
  EXPECT_EQ(Summarize({1, 1, 1, 1, 1000}).median, 1);
}

}  // namespace
}  // namespace gemmd::bench
