// The end of sessions, of regions in use and of the node, and devices that hang.
#include <atomic>
#include <stdexcept>
#include <thread>

#include "tests/core/node/node_fixture.h"

namespace gemmd {
namespace {

constexpr absl::Duration kInstant = absl::Milliseconds(100);

class Events : public NodeObserver {
 public:
  void OnRequest(const std::string&, bool, absl::StatusCode, const Timing&) override { ++requests; }
  void OnRejected(const std::string&) override { ++rejected; }
  void OnSessionEnd(const std::string& why) override {
    MutexLock lock(mutex);
    ends.push_back(why);
  }
  void OnRegionOpen(const std::string&, const absl::Status&) override { ++opened; }
  void OnRegionClose(absl::Duration) override { ++closed; }
  void OnLayerLoad(const std::string&, const absl::Status&, absl::Duration) override { ++loaded; }
  std::vector<std::string> Ends() {
    MutexLock lock(mutex);
    return ends;
  }
  std::atomic<int> requests{0}, rejected{0}, opened{0}, closed{0}, loaded{0};

 private:
  Mutex mutex;
  std::vector<std::string> ends;
};

class NodeEndTest : public NodeTest {
 protected:
  ~NodeEndTest() override {
    gate.Open();
    node.reset();  // before its observer
  }
  Events events;
};

TEST_F(NodeEndTest, UnregisteringWhileAHundredRequestsAreQueuedHarmsNone) {
  Create();
  Client client(*node);
  client.Prepare();
  BlockRuns();
  std::vector<std::shared_ptr<Outcome<GemmResult>>> outcomes;
  for (int i = 0; i < 100; ++i) outcomes.push_back(client.Start(client.Request()));
  gate.WaitForArrivals(1);
  ASSERT_TRUE(Soon([&] { return node->Status().closing == 0; }));  // what loading the layer used
  const int before = state->closes;
  ASSERT_TRUE(node->UnregisterRegion(*client.session(), client.x).ok());
  EXPECT_EQ(client.Gemm().code(), absl::StatusCode::kNotFound) << "new requests fail at once";
  EXPECT_EQ(state->closes, before) << "requests in flight still use the memory";
  gate.Open();
  for (const auto& outcome : outcomes) EXPECT_TRUE(outcome->Wait().ok());
  EXPECT_TRUE(Soon([&] { return state->closes == before + 1; }));
}

TEST_F(NodeEndTest, UnregisteringRightAfterTheAnswerAlwaysWorks) {
  Create();
  Client client(*node);
  client.Prepare();
  for (int i = 0; i < 200; ++i) {
    const RegionRef x = client.NewRegion(4096).value();
    GemmRequest request = client.Request();
    request.x.region = x;
    ASSERT_TRUE(client.Gemm(request).ok());
    ASSERT_TRUE(node->UnregisterRegion(*client.session(), x).ok());
  }
  EXPECT_TRUE(Soon([&] { return node->Status().closing == 0; }));
  EXPECT_EQ(node->Status().regions, 2);
}

TEST_F(NodeEndTest, TheEndGivesEverythingBack) {
  Create({}, &events);
  Client client(*node);
  client.Prepare();
  ASSERT_TRUE(client.Gemm().ok());
  const absl::Time start = absl::Now();
  client.End();
  EXPECT_LT(absl::Now() - start, kInstant);
  EXPECT_TRUE(Soon([&] { return NothingHeld() && !events.Ends().empty(); }));
  EXPECT_EQ(events.Ends(), std::vector<std::string>{"eof"});
  EXPECT_EQ(events.requests, 1);
  EXPECT_TRUE(Soon([&] { return events.opened == events.closed; }));
  EXPECT_EQ(ReasonOf(client.Gemm()), "SESSION_ENDED");
  EXPECT_EQ(ReasonOf(client.NewRegion(1).status()), "SESSION_ENDED");
  EXPECT_EQ(ReasonOf(client.StartLayer("x", 3)->Wait().status()), "SESSION_ENDED");
  client.End();
  EXPECT_EQ(events.Ends().size(), 1u) << "ending twice counts once";
}

TEST_F(NodeEndTest, TheEndFailsQueuedRequestsAndLetsTheRunningOneFinish) {
  Create();
  Client client(*node);
  client.Prepare();
  BlockRuns();
  const auto running = client.Start(client.Request());
  gate.WaitForArrivals(1);
  std::vector<std::shared_ptr<Outcome<GemmResult>>> queued;
  for (int i = 0; i < 20; ++i) queued.push_back(client.Start(client.Request()));
  client.End();
  for (const auto& outcome : queued) {
    EXPECT_EQ(outcome->calls(), 1);
    EXPECT_EQ(ReasonOf(outcome->Wait().status()), "SESSION_ENDED");
  }
  EXPECT_EQ(running->calls(), 0);
  gate.Open();
  EXPECT_TRUE(running->Wait().ok());
  EXPECT_TRUE(Soon([&] { return NothingHeld(); }));
}

TEST_F(NodeEndTest, TheEndDuringARegionsOpenGivesItBack) {
  Create();
  Client client(*node);
  state->on_open = [this] {
    gate.Wait();
    return absl::OkStatus();
  };
  absl::StatusOr<RegionRef> region = absl::UnknownError("not yet");
  std::thread opener([&] { region = client.NewRegion(4096); });
  gate.WaitForArrivals(1);
  client.End();
  gate.Open();
  opener.join();
  EXPECT_EQ(ReasonOf(region.status()), "SESSION_ENDED");
  EXPECT_TRUE(Soon([&] { return NothingHeld(); }));
}

TEST_F(NodeEndTest, TheEndDuringALayersLoadGivesItBack) {
  Create({}, &events);
  Client client(*node);
  state->on_load = [this] {
    gate.Wait();
    return absl::OkStatus();
  };
  const auto outcome = client.StartLayer("layer", 1);
  gate.WaitForArrivals(1);
  client.End();
  EXPECT_EQ(ReasonOf(outcome->Wait().status()), "SESSION_ENDED");
  gate.Open();
  EXPECT_TRUE(Soon([&] { return events.loaded == 1 && NothingHeld(); }));
  EXPECT_EQ(outcome->calls(), 1);
}

TEST_F(NodeEndTest, AHangingCloseBlocksNobodyElse) {
  Create();
  Client dead(*node);
  dead.Prepare();
  Client other(*node);
  other.Prepare("cuda:fake", /*seed=*/2);
  ASSERT_TRUE(Soon([&] { return node->Status().closing == 0; }));
  state->on_close = [this] { gate.Wait(); };
  const absl::Time start = absl::Now();
  dead.End();
  gate.WaitForArrivals(1);
  EXPECT_GE(node->Status().closing, 1);
  EXPECT_TRUE(other.Gemm().ok());
  EXPECT_TRUE(other.NewRegion(100).ok());
  EXPECT_EQ(node->ListSessions().size(), 1u);
  EXPECT_LT(absl::Now() - start, kInstant);
  EXPECT_GT(node->Status().oldest_close, absl::ZeroDuration());
  gate.Open();
  EXPECT_TRUE(Soon([&] { return node->Status().closing == 0; }));
}

TEST_F(NodeEndTest, AHangingRunBlocksOnlyItsSession) {
  Create();
  Client stuck(*node);
  Client other(*node);
  stuck.Prepare();
  other.Prepare();
  std::atomic<int> runs{0};
  state->on_run = [&] {
    if (runs++ == 0) gate.Wait();
    return absl::OkStatus();
  };
  const auto hanging = stuck.Start(stuck.Request());
  gate.WaitForArrivals(1);
  const absl::Time start = absl::Now();
  EXPECT_TRUE(other.Gemm().ok());
  EXPECT_EQ(node->ListSessions().size(), 2u);
  stuck.End();
  EXPECT_LT(absl::Now() - start, kInstant);
  EXPECT_EQ(hanging->calls(), 0);
  gate.Open();
  EXPECT_TRUE(hanging->Wait().ok());
}

TEST_F(NodeEndTest, ADeviceThatThrowsOrFailsAnswersOnce) {
  Create();
  Client client(*node);
  client.Prepare();
  state->on_run = []() -> absl::Status { throw std::runtime_error("boom"); };
  const auto thrown = client.Start(client.Request());
  EXPECT_EQ(thrown->Wait().status().code(), absl::StatusCode::kInternal);
  state->on_run = [] { return Error(absl::StatusCode::kDataLoss, "CONTEXT_LOST", "gone"); };
  EXPECT_EQ(ReasonOf(client.Gemm()), "CONTEXT_LOST");
  state->on_run = nullptr;
  EXPECT_TRUE(client.Gemm().ok());
  EXPECT_EQ(thrown->calls(), 1);
}

TEST_F(NodeEndTest, LateAndCancelledRequestsAreNotRun) {
  Create();
  Client client(*node);
  client.Prepare();
  BlockRuns();
  const auto first = client.Start(client.Request());
  gate.WaitForArrivals(1);
  const auto late = client.Start(client.Request(), absl::Now());
  const auto cancelled =
      client.Start(client.Request(), absl::InfiniteFuture(), [] { return true; });
  gate.Open();
  EXPECT_EQ(late->Wait().status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(cancelled->Wait().status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(first->Wait().ok());
  EXPECT_EQ(state->runs, 1);
}

TEST_F(NodeEndTest, AStreamSessionNobodyKeepsExpires) {
  NodeOptions options;
  options.stream_grace = absl::Milliseconds(200);  // `kept` must be in time
  Create(options, &events);
  Client abandoned(*node, "stream");
  Client kept(*node, "stream");
  Client socket(*node, "socket");
  ASSERT_TRUE(node->BeginKeep(*kept.session()).ok());
  EXPECT_TRUE(Soon([&] { return node->Status().sessions == 2 && !events.Ends().empty(); }));
  EXPECT_EQ(events.Ends(), std::vector<std::string>{"expired"});
  EXPECT_EQ(ReasonOf(node->BeginKeep(*abandoned.session())), "SESSION_ENDED");
  node->EndKeep(kept.session());
  EXPECT_EQ(node->Status().sessions, 1) << "the end of the stream is the end of the session";
}

TEST_F(NodeEndTest, DrainingFinishesWhatRunsAndRefusesTheRest) {
  Create();
  Client client(*node);
  client.Prepare();
  BlockRuns();
  const auto running = client.Start(client.Request());
  gate.WaitForArrivals(1);
  EXPECT_EQ(node->Drain(absl::Now() + absl::Milliseconds(10)).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(node->Status().draining);
  EXPECT_EQ(ReasonOf(client.Gemm()), "DRAINING");
  EXPECT_EQ(client.Gemm().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(node->OpenSession({}).status()), "DRAINING");
  EXPECT_EQ(ReasonOf(client.StartLayer("new", 9)->Wait().status()), "DRAINING");
  gate.Open();
  EXPECT_TRUE(node->Drain(absl::Now() + absl::Seconds(10)).ok());
  EXPECT_EQ(running->calls(), 1);
}

TEST_F(NodeEndTest, TheNodesEndAnswersEverything) {
  Create();
  auto client = std::make_unique<Client>(*node);
  client->Prepare();
  state->on_run = [] {
    absl::SleepFor(absl::Milliseconds(5));
    return absl::OkStatus();
  };
  std::vector<std::shared_ptr<Outcome<GemmResult>>> outcomes;
  for (int i = 0; i < 50; ++i) outcomes.push_back(client->Start(client->Request()));
  node.reset();
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome->calls(), 1);
}

}  // namespace
}  // namespace gemmd
