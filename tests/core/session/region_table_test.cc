#include "core/session/region_table.h"

#include <gtest/gtest.h>

#include "kernels/base/status.h"
#include "tests/support/fake_device.h"

namespace gemmd {
namespace {

using testing::FakeDevice;
using testing::FakeState;

class RegionTableTest : public ::testing::Test {
 protected:
  RegionTableTest() {
    table.AddSession(1);
    table.AddSession(2);
  }
  absl::StatusOr<RegionInfo> Add(uint64_t session, uint64_t size) {
    if (absl::Status status = table.Reserve(session, size); !status.ok()) return status;
    Region region;
    region.session_id = session;
    region.device = &device;
    region.mapping = std::make_shared<SharedMapping>(device.Allocate(size).value());
    region.size = size;
    return table.Commit(std::move(region));
  }

  std::shared_ptr<FakeState> state = std::make_shared<FakeState>();
  FakeDevice device{state};
  RegionTable table{{3, 1000}};
};

TEST_F(RegionTableTest, FindsOnlyTheOwnersRegionOfTheRightGeneration) {
  const RegionRef ref = Add(1, 100)->ref;
  EXPECT_TRUE(table.Find(1, ref).ok());
  EXPECT_EQ(ReasonOf(table.Find(2, ref).status()), "NOT_OWNER");
  EXPECT_EQ(ReasonOf(table.Find(1, {ref.id, ref.generation + 1}).status()), "STALE_EPOCH");
  EXPECT_EQ(ReasonOf(table.Find(1, {ref.id ^ 1, ref.generation}).status()), "REGION_NOT_FOUND");
}

TEST_F(RegionTableTest, IdsCannotBeGuessedFromEachOther) {
  const uint64_t first = Add(1, 1)->ref.id;
  const uint64_t second = Add(1, 1)->ref.id;
  EXPECT_GT(std::max(first, second) - std::min(first, second), 1000u);
}

TEST_F(RegionTableTest, CountsRegionsAndBytesAgainstTheQuota) {
  ASSERT_TRUE(Add(1, 600).ok());
  EXPECT_EQ(ReasonOf(Add(1, 401).status()), "QUOTA");
  EXPECT_EQ(ReasonOf(Add(1, ~uint64_t{0}).status()), "QUOTA");
  ASSERT_TRUE(Add(1, 400).ok());
  const auto third = Add(1, 0);
  ASSERT_TRUE(third.ok());
  EXPECT_EQ(ReasonOf(Add(1, 0).status()), "QUOTA");
  EXPECT_TRUE(Add(2, 1000).ok()) << "the other session has its own quota";
  ASSERT_TRUE(table.Remove(1, third->ref).ok());
  EXPECT_TRUE(Add(1, 0).ok());
}

TEST_F(RegionTableTest, ACancelledReservationGivesItsQuotaBack) {
  ASSERT_TRUE(table.Reserve(1, 1000).ok());
  EXPECT_EQ(ReasonOf(table.Reserve(1, 1)), "QUOTA");
  table.Cancel(1, 1000);
  EXPECT_TRUE(Add(1, 1000).ok());
}

TEST_F(RegionTableTest, UnregisteringTwiceIsNoError) {
  const RegionRef ref = Add(1, 10)->ref;
  EXPECT_EQ(ReasonOf(table.Remove(2, ref).status()), "NOT_OWNER");
  EXPECT_TRUE(table.Remove(1, ref).ok());
  EXPECT_TRUE(table.Remove(1, ref).ok());
  EXPECT_EQ(table.totals().regions, 0);
  EXPECT_EQ(state->closes, 1);
}

TEST_F(RegionTableTest, TheEndOfASessionTakesItsRegionsAndRefusesNewOnes) {
  const RegionRef ref = Add(1, 10)->ref;
  ASSERT_TRUE(Add(1, 10).ok());
  ASSERT_TRUE(Add(2, 10).ok());
  ASSERT_TRUE(table.Reserve(1, 5).ok());  // a registration in flight
  EXPECT_EQ(table.RemoveSession(1).size(), 2u);
  Region late;
  late.session_id = 1;
  late.device = &device;
  late.mapping = std::make_shared<SharedMapping>(device.Allocate(5).value());
  EXPECT_EQ(ReasonOf(table.Commit(std::move(late)).status()), "SESSION_ENDED");
  EXPECT_EQ(ReasonOf(table.Reserve(1, 5)), "SESSION_ENDED");
  EXPECT_EQ(ReasonOf(table.Find(1, ref).status()), "SESSION_ENDED");
  EXPECT_TRUE(table.Remove(1, ref).ok()) << "nothing is left to unregister";
  EXPECT_EQ(table.totals().regions, 1);
  EXPECT_EQ(table.List(2).size(), 1u);
}

}  // namespace
}  // namespace gemmd
