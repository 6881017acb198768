// Tuning through a node: which device, and what it hears of requests, drains and callers that go.
#include <gmock/gmock.h>

#include <thread>

#include "core/exec/tune_call.h"
#include "core/prewarm.h"
#include "core/tune.h"
#include "tests/core/node/node_fixture.h"

namespace gemmd {
namespace {

class TunableDevice : public testing::FakeDevice {
 public:
  using Hook = std::function<absl::Status(const TuneCall&)>;
  TunableDevice(std::shared_ptr<testing::FakeState> state, std::string id, Hook hook)
      : FakeDevice(std::move(state), std::move(id)), hook_(std::move(hook)) {}
  absl::Status Tune(const TuneCall& call) override { return hook_(call); }

 private:
  const Hook hook_;
};

class NodeTuneTest : public NodeTest {
 protected:
  void SetUp() override {
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(std::make_unique<testing::FakeDevice>(state));
    devices.push_back(std::make_unique<TunableDevice>(state, "cuda:tunable", [this](const TuneCall& call) {
      return on_tune(call);
    }));
    node = std::make_unique<Node>(NodeOptions(), std::move(devices), nullptr);
  }
  absl::Status Tune(const std::string& device = "cuda:tunable") {
    return node->Tune(device, {{testing::Int4Spec(), {1, kN, kK}}}, settings,
                      [this] { return gone.load(); }, nullptr);
  }

  TunableDevice::Hook on_tune;
  TuneSettings settings;
  std::atomic<bool> gone{false};
};

TEST_F(NodeTuneTest, TheNamedDeviceIsAskedOrTheBestGpu) {
  on_tune = [](const TuneCall& call) {
    EXPECT_EQ(call.layers.size(), 1u);
    return absl::OkStatus();
  };
  EXPECT_TRUE(Tune().ok());
  EXPECT_EQ(ReasonOf(Tune("")), "NOT_TUNABLE") << "the best GPU cannot be tuned";
  EXPECT_EQ(ReasonOf(Tune("cuda:none")), "WRONG_DEVICE");
}

TEST_F(NodeTuneTest, WaitsWhileARequestRunsAndCountsIt) {
  BlockRuns();
  Client client(*node);
  client.Prepare();
  const auto request = client.Start(client.Request());
  gate.WaitForArrivals(1);
  std::atomic<bool> asked{false};
  on_tune = [&](const TuneCall& call) {
    const uint64_t before = call.control.disturbances();
    asked = true;
    EXPECT_TRUE(call.control.wait().ok());
    EXPECT_EQ(request->calls(), 1) << "the request is done";
    EXPECT_EQ(call.control.disturbances(), before);
    EXPECT_TRUE(client.Gemm().ok());
    EXPECT_EQ(call.control.disturbances(), before + 1);
    return absl::OkStatus();
  };
  std::thread tuning([this] { EXPECT_TRUE(Tune().ok()); });
  ASSERT_TRUE(Soon([&] { return asked.load(); }));
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_EQ(request->calls(), 0);
  gate.Open();
  tuning.join();
}

TEST_F(NodeTuneTest, BusyUntilTheTimeLimitIsOutOfTime) {
  BlockRuns();
  Client client(*node);
  client.Prepare();
  const auto request = client.Start(client.Request());
  gate.WaitForArrivals(1);
  settings.deadline = absl::Now() + absl::Milliseconds(10);
  on_tune = [](const TuneCall& call) { return call.control.wait(); };
  EXPECT_EQ(ReasonOf(Tune()), "TIME_LIMIT");
  gate.Open();
  EXPECT_TRUE(request->Wait().ok());
}

TEST_F(NodeTuneTest, ACallerThatHasGoneAndADrainEndIt) {
  on_tune = [this](const TuneCall& call) {
    EXPECT_FALSE(call.control.cancelled());
    EXPECT_TRUE(call.control.wait().ok());
    gone = true;
    EXPECT_TRUE(call.control.cancelled());
    return call.control.wait();
  };
  EXPECT_TRUE(absl::IsCancelled(Tune()));
  gone = false;
  on_tune = [this](const TuneCall& call) {
    EXPECT_TRUE(node->Drain(absl::Now()).ok());
    EXPECT_TRUE(call.control.cancelled());
    return call.control.wait();
  };
  EXPECT_EQ(ReasonOf(Tune()), "DRAINING");
}

TEST_F(NodeTuneTest, LayersAreDistinct) {
  Client client(*node);
  client.Prepare();
  TuneJob job;
  job.running_layers = true;
  job.layers = {{testing::Int4Spec(), {1, kN, kK}}, {testing::Int4Spec(), {1, 2 * kN, kK}}};
  const auto layers = ResolveTune(job, *node, {}, [] { return false; });
  ASSERT_TRUE(layers.ok()) << layers.status();
  EXPECT_EQ(layers->size(), 2u);
  PrewarmJob prewarm;
  prewarm.architectures = {"sm_90a"};
  prewarm.layers.assign(64, {testing::Int4Spec(), {1, kN, kK}});
  const auto plan = ResolvePrewarm(prewarm, *node, {}, [] { return false; });
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->layers.size(), 1u);
  EXPECT_EQ(plan->named, 64);
}

}  // namespace
}  // namespace gemmd
