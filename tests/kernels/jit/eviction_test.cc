#include "kernels/jit/eviction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gemmd::jit {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(EvictionTest, NothingGoesWhileEverythingFits) {
  EXPECT_THAT(ChooseVictims({{"a", 40, 1, false}, {"b", 60, 2, false}}, 100), IsEmpty());
}

TEST(EvictionTest, LeastRecentlyUsedGoFirstUntilTheRestFits) {
  EXPECT_THAT(
      ChooseVictims({{"new", 50, 9, false}, {"old", 50, 1, false}, {"mid", 50, 5, false}}, 60),
      ElementsAre("old", "mid"));
}

TEST(EvictionTest, NeverUsedEntriesGoBeforeAllOthersInTheOrderOfKeys) {
  EXPECT_THAT(ChooseVictims({{"used", 10, 1, false}, {"b", 10, 0, false}, {"a", 10, 0, false}}, 10),
              ElementsAre("a", "b"));
}

TEST(EvictionTest, WhatCameLastWasNotEvictedWhenItWouldFitBelowTheTarget) {
  EXPECT_EQ(EvictionTarget(1000), 900u);
  EXPECT_EQ(EvictionTarget(0), 0u);
  EXPECT_FALSE(MayBeEvicted(100, 800, 1000));
  EXPECT_TRUE(MayBeEvicted(100, 801, 1000));
  EXPECT_TRUE(MayBeEvicted(2000, 0, 1000));
  EXPECT_FALSE(MayBeEvicted(100, 1 << 30, 0)) << "no limit";
}

TEST(EvictionTest, LoadedEntriesStayEvenWhenTheLimitCannotBeKept) {
  EXPECT_THAT(ChooseVictims({{"loaded", 90, 1, true}, {"free", 50, 2, false}}, 20),
              ElementsAre("free"));
}

}  // namespace
}  // namespace gemmd::jit
