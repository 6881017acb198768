#include "core/session/shared_mapping.h"

#include <gtest/gtest.h>

#include <thread>

#include "absl/time/clock.h"
#include "kernels/base/status.h"
#include "tests/support/fake_device.h"

namespace gemmd {
namespace {

using testing::Barrier;
using testing::FakeDevice;
using testing::FakeState;

class MappingTableTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::shared_ptr<SharedMapping>> Open(uint64_t buffer_id,
                                                      const std::string& exporter = "pid 1",
                                                      const std::string& handle = "handle") {
    return table.Open({"cuda:fake", exporter, handle}, buffer_id, reaper,
                      [this] { return device.OpenCudaIpc({}, 4096); });
  }
  void WaitForCloses(int count) {
    reaper.WaitUntilEmpty(absl::Now() + absl::Seconds(5));
    EXPECT_EQ(state->closes, count);
  }

  std::shared_ptr<FakeState> state = std::make_shared<FakeState>();
  FakeDevice device{state};
  Reaper reaper{nullptr};
  MappingTable table;
};

TEST_F(MappingTableTest, OneOpenServesEveryRegionOfAnAllocation) {
  const auto first = Open(7).value();
  EXPECT_EQ(Open(7).value(), first);
  EXPECT_EQ(Open(0).value(), first) << "an unknown buffer_id takes what is there";
  EXPECT_EQ(state->opens, 1);
}

TEST_F(MappingTableTest, OtherProcessesAndHandlesHaveTheirOwn) {
  const auto first = Open(7).value();
  const auto second = Open(7, "pid 2").value();
  const auto third = Open(7, "pid 1", "other").value();
  EXPECT_EQ(state->opens, 3);
  EXPECT_NE(second->Acquire(), nullptr);
  EXPECT_NE(first->Acquire(), nullptr);
}

TEST_F(MappingTableTest, ANewBufferAtTheHandleMakesTheOldOneStaleAndClosesItFirst) {
  const auto old = Open(7).value();
  const auto fresh = Open(8).value();
  EXPECT_EQ(old->Acquire(), nullptr);
  EXPECT_NE(fresh->Acquire(), nullptr);
  EXPECT_EQ(state->opens, 2);
  EXPECT_EQ(state->closes, 1) << "the driver would hand out the old memory again";
}

TEST_F(MappingTableTest, RefusesToReopenWhileARequestUsesTheOldMemory) {
  const auto old = Open(7).value();
  auto in_flight = old->Acquire();
  const absl::Status status = Open(8).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(status), "IPC_OPEN_FAILED");
  in_flight.reset();
  EXPECT_TRUE(Open(8).ok());
}

TEST_F(MappingTableTest, ClosesAfterTheLastUserAndOpensAgain) {
  auto mapping = Open(7).value();
  auto in_flight = mapping->Acquire();
  mapping.reset();
  EXPECT_EQ(state->closes, 0);
  in_flight.reset();
  WaitForCloses(1);
  EXPECT_TRUE(Open(7).ok());
  EXPECT_EQ(state->opens, 2);
}

TEST_F(MappingTableTest, AFailedOpenLeavesNothingBehind) {
  state->on_open = [] {
    return Error(absl::StatusCode::kFailedPrecondition, "IPC_OPEN_FAILED", "no");
  };
  EXPECT_FALSE(Open(7).ok());
  state->on_open = nullptr;
  EXPECT_TRUE(Open(7).ok());
}

TEST_F(MappingTableTest, ConcurrentOpensShareOneCall) {
  Barrier gate;
  state->on_open = [&] {
    gate.Wait();
    return absl::OkStatus();
  };
  std::vector<std::shared_ptr<SharedMapping>> mappings(8);
  std::vector<std::thread> threads;
  for (auto& mapping : mappings) threads.emplace_back([&] { mapping = Open(7).value(); });
  gate.WaitForArrivals(1);
  gate.Open();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(state->opens, 1);
  for (const auto& mapping : mappings) EXPECT_EQ(mapping, mappings[0]);
}

TEST(ReaperTest, AHangingCloseShowsInTheBacklogAndBlocksOnlyOtherCloses) {
  auto state = std::make_shared<FakeState>();
  Barrier gate;
  state->on_close = [&] { gate.Wait(); };
  FakeDevice device(state);
  std::atomic<int> reported{0};
  Reaper reaper([&](absl::Duration) { ++reported; });
  auto first = reaper.Guard(device.Allocate(10).value());
  auto second = reaper.Guard(device.Allocate(10).value());
  first.reset();
  second.reset();  // returns at once
  gate.WaitForArrivals(1);
  EXPECT_EQ(reaper.backlog().pending, 2);
  absl::SleepFor(absl::Milliseconds(5));
  EXPECT_GE(reaper.backlog().oldest, absl::Milliseconds(5));
  EXPECT_FALSE(reaper.WaitUntilEmpty(absl::Now() + absl::Milliseconds(5)));
  gate.Open();
  EXPECT_TRUE(reaper.WaitUntilEmpty(absl::Now() + absl::Seconds(5)));
  EXPECT_EQ(reaper.backlog().pending, 0);
  EXPECT_EQ(reported, 2);
}

}  // namespace
}  // namespace gemmd
