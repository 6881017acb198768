#include "kernels/jit/compile_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "kernels/base/status.h"

namespace gemmd::jit {
namespace {

using ::testing::ElementsAre;

// Happens once. (ThreadSanitizer does not see what abseil's own orders.)
class Event {
 public:
  void Notify() {
    MutexLock lock(mutex_);
    happened_ = true;
    changed_.NotifyAll();
  }
  void Wait() {
    MutexLock lock(mutex_);
    changed_.Wait(mutex_, [this] { return happened_; });
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool happened_ = false;
};

// One worker that is busy until Release, and the order in which what waits is done.
class CompileQueueTest : public ::testing::Test {
 protected:
  explicit CompileQueueTest() : queue_(1, 4, absl::Milliseconds(20), [this] { ++rests_; }) {}

  void Occupy() {
    queue_.Add(CompilePriority::kClient, [this](const absl::Status&) {
      started_.Notify();
      release_.Wait();
    });
    started_.Wait();
  }
  uint64_t Add(CompilePriority priority, const std::string& name) {
    return queue_.Add(priority, [this, name](const absl::Status& go) {
      MutexLock lock(mutex_);
      done_.push_back(go.ok() ? name
                              : name + " " + (ReasonOf(go).empty() ? "cancelled" : ReasonOf(go)));
      changed_.NotifyAll();
    });
  }
  std::vector<std::string> Finish(size_t count) {
    release_.Notify();
    MutexLock lock(mutex_);
    changed_.Wait(mutex_, [&] { return done_.size() >= count; });
    return done_;
  }

  Event started_;
  Event release_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> done_;
  std::atomic<int> rests_{0};
  CompileQueue queue_;
};

TEST_F(CompileQueueTest, ClientsComeBeforePrewarmingBeforeTuning) {
  Occupy();
  Add(CompilePriority::kTuning, "tuning");
  Add(CompilePriority::kPrewarm, "prewarm");
  Add(CompilePriority::kClient, "first client");
  Add(CompilePriority::kClient, "second client");
  EXPECT_THAT(Finish(4), ElementsAre("first client", "second client", "prewarm", "tuning"));
}

TEST_F(CompileQueueTest, RaisedWorkOvertakes) {
  Occupy();
  Add(CompilePriority::kPrewarm, "prewarm");
  const uint64_t ticket = Add(CompilePriority::kTuning, "tuning");
  queue_.Raise(ticket, CompilePriority::kClient);
  queue_.Raise(ticket, CompilePriority::kTuning);  // never lowers
  EXPECT_THAT(Finish(2), ElementsAre("tuning", "prewarm"));
}

TEST_F(CompileQueueTest, CancelledWorkIsForgottenRunningWorkIsNot) {
  Occupy();
  const uint64_t ticket = Add(CompilePriority::kPrewarm, "cancelled");
  Add(CompilePriority::kPrewarm, "kept");
  EXPECT_TRUE(queue_.Cancel(ticket));
  EXPECT_FALSE(queue_.Cancel(ticket));
  EXPECT_THAT(Finish(1), ElementsAre("kept"));
}

TEST_F(CompileQueueTest, FullQueueDropsTheLeastUrgentWithAReason) {
  Occupy();
  Add(CompilePriority::kPrewarm, "a");
  Add(CompilePriority::kTuning, "b");
  Add(CompilePriority::kPrewarm, "c");
  Add(CompilePriority::kPrewarm, "d");
  Add(CompilePriority::kClient, "client");  // displaces the tuning
  Add(CompilePriority::kTuning, "e");       // is dropped itself
  EXPECT_THAT(Finish(6), ElementsAre("b QUEUE_FULL", "e QUEUE_FULL", "client", "a", "c", "d"));
}

TEST_F(CompileQueueTest, IdleWorkerRests) {
  for (int i = 0; i < 200 && rests_ == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_GT(rests_, 0);
}

TEST(CompileQueueBoundsTest, BackgroundWorkLeavesAWorkerToClients) {
  CompileQueue queue(2, 16, absl::Seconds(1), [] {});
  Event release;
  Event served;
  std::atomic<int> background{0};
  for (int i = 0; i < 3; ++i) {
    queue.Add(CompilePriority::kPrewarm, [&](const absl::Status&) {
      ++background;
      release.Wait();
    });
  }
  queue.Add(CompilePriority::kClient, [&](const absl::Status&) { served.Notify(); });
  served.Wait();
  EXPECT_LE(background, 1);
  release.Notify();
}

TEST(CompileQueueBoundsTest, ClosingDropsWhatWaitsAndFinishesWhatRuns) {
  std::atomic<int> ran{0};
  std::atomic<int> dropped{0};
  {
    Event started;
    CompileQueue queue(1, 16, absl::Seconds(1), [] {});
    queue.Add(CompilePriority::kClient, [&](const absl::Status&) {
      started.Notify();
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      ++ran;
    });
    started.Wait();
    queue.Add(CompilePriority::kClient, [&](const absl::Status& go) {
      EXPECT_EQ(go.code(), absl::StatusCode::kCancelled);
      ++dropped;
    });
  }
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(dropped, 1);
}

}  // namespace
}  // namespace gemmd::jit
