#include "core/exec/executor.h"

#include <gtest/gtest.h>

#include <vector>

#include "absl/time/clock.h"
#include "kernels/base/status.h"
#include "tests/support/fake_device.h"

namespace gemmd {
namespace {

using testing::Barrier;
using testing::FakeDevice;
using testing::FakeState;

// What became of the jobs of one test.
struct Log {
  void Add(int id, const absl::Status& status) {
    MutexLock lock(mutex);
    entries.emplace_back(id, status);
    changed.NotifyAll();
  }
  std::vector<std::pair<int, absl::Status>> WaitFor(size_t count) {
    MutexLock lock(mutex);
    changed.WaitUntil(mutex, absl::Now() + absl::Seconds(20),
                      [&] { return entries.size() >= count; });
    return entries;
  }
  Mutex mutex;
  CondVar changed;
  std::vector<std::pair<int, absl::Status>> entries;
};

class TestJob : public Job {
 public:
  TestJob(int id, Log& log, std::function<void()> work = nullptr)
      : id_(id), log_(log), work_(std::move(work)) {}
  std::function<void()> Run(Stream&, absl::Duration) override {
    if (work_) work_();
    return [this] { log_.Add(id_, absl::OkStatus()); };
  }
  void Fail(const absl::Status& status, absl::Duration) override { log_.Add(id_, status); }

 private:
  const int id_;
  Log& log_;
  const std::function<void()> work_;
};

class ExecutorTest : public ::testing::Test {
 protected:
  ~ExecutorTest() override {
    gate.Open();
    executor.Stop();
    tracker->WaitUntilNone();
  }
  std::shared_ptr<TestJob> NewJob(int id, std::function<void()> work = nullptr) {
    return std::make_shared<TestJob>(id, log, std::move(work));
  }
  // A running job that blocks until `gate` opens.
  void Occupy(int id) {
    ASSERT_TRUE(executor.Submit(NewJob(id, [this] { gate.Wait(); })).ok());
    gate.WaitForArrivals(1);
  }

  Log log;
  Barrier gate;
  FakeDevice device{std::make_shared<FakeState>()};
  std::shared_ptr<ThreadTracker> tracker = std::make_shared<ThreadTracker>();
  std::shared_ptr<std::atomic<int>> queued = std::make_shared<std::atomic<int>>(0);
  Executor executor{device, queued, 4, tracker};
};

TEST_F(ExecutorTest, RunsJobsInOrder) {
  for (int id = 0; id < 4; ++id) ASSERT_TRUE(executor.Submit(NewJob(id)).ok());
  const auto entries = log.WaitFor(4);
  ASSERT_EQ(entries.size(), 4u);
  for (int id = 0; id < 4; ++id) EXPECT_EQ(entries[static_cast<size_t>(id)].first, id);
  EXPECT_EQ(queued->load(), 0);
}

TEST_F(ExecutorTest, RefusesMoreThanTheLimitAndRecovers) {
  Occupy(0);
  for (int id = 1; id < 4; ++id) ASSERT_TRUE(executor.Submit(NewJob(id)).ok());
  const absl::Status full = executor.Submit(NewJob(4));
  EXPECT_EQ(ReasonOf(full), "QUEUE_FULL");
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  gate.Open();
  EXPECT_EQ(log.WaitFor(4).size(), 4u);
  EXPECT_TRUE(executor.Submit(NewJob(5)).ok());
  EXPECT_EQ(log.WaitFor(5).size(), 5u);
}

TEST_F(ExecutorTest, AnAnsweredJobNoLongerCounts) {
  for (int round = 0; round < 100; ++round) {
    for (int id = 0; id < 4; ++id) ASSERT_TRUE(executor.Submit(NewJob(id)).ok()) << round;
    log.WaitFor(static_cast<size_t>(4 * (round + 1)));
  }
}

TEST_F(ExecutorTest, SkipsJobsWhoseTimeOrClientIsGone) {
  Occupy(0);
  auto late = NewJob(1);
  late->deadline = absl::Now() + absl::Milliseconds(1);
  auto cancelled = NewJob(2);
  std::atomic<bool> gone{false};
  cancelled->cancelled = [&gone] { return gone.load(); };
  ASSERT_TRUE(executor.Submit(late).ok());
  ASSERT_TRUE(executor.Submit(cancelled).ok());
  gone = true;
  absl::SleepFor(absl::Milliseconds(5));
  gate.Open();
  const auto entries = log.WaitFor(3);
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[1].second.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(entries[2].second.code(), absl::StatusCode::kCancelled);
}

TEST_F(ExecutorTest, StopFailsWhatWaitsAtOnceAndLetsTheRunningJobFinish) {
  Occupy(0);
  for (int id = 1; id < 4; ++id) ASSERT_TRUE(executor.Submit(NewJob(id)).ok());
  executor.Stop();
  auto entries = log.WaitFor(3);
  ASSERT_EQ(entries.size(), 3u);
  for (const auto& [id, status] : entries) EXPECT_EQ(ReasonOf(status), "SESSION_ENDED");
  EXPECT_EQ(ReasonOf(executor.Submit(NewJob(9))), "SESSION_ENDED");
  gate.Open();
  entries = log.WaitFor(4);
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_TRUE(entries[3].second.ok());
}

}  // namespace
}  // namespace gemmd
