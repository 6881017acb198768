// The client library against a daemon of a few lines: opening, retries, restarts, fork.
#include "client/session.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "absl/time/clock.h"
#include "client/model.h"
#include "client/session_state.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/status.h"
#include "tests/client/fake_daemon.h"

namespace gemmd::client {
namespace {

std::vector<std::byte> Pattern(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  return bytes;
}

class SessionTest : public testing::Test {
 protected:
  SessionTest() {
    char pattern[] = "/tmp/gmcXXXXXX";
    directory_ = mkdtemp(pattern);
    daemon_ = std::make_unique<FakeDaemon>(directory_);
    daemon_->Start();
  }
  ~SessionTest() override {
    daemon_ = nullptr;
    std::filesystem::remove_all(directory_);
  }

  SessionOptions Options() const {
    SessionOptions options;
    options.address = daemon_->socket_path();
    options.reconnect_timeout = absl::Seconds(5);
    options.call_timeout = absl::Seconds(5);
    options.retry.initial_pause = absl::Milliseconds(1);
    return options;
  }
  Session Open() const {
    auto session = Session::Open(Options());
    EXPECT_TRUE(session.ok()) << session.status();
    return *std::move(session);
  }
  void Restart() {
    daemon_->Stop();
    daemon_->Start();
  }
  // The end of a session reaches the daemon through a socket.
  template <typename Condition>
  static bool Eventually(Condition condition) {
    for (int i = 0; i < 400; ++i) {
      if (condition()) return true;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return false;
  }

  std::string directory_;
  std::unique_ptr<FakeDaemon> daemon_;
};

// What the daemon need not know of.
class Nothing : public Resource {
  absl::Status Register(Link&, absl::Time) override { return absl::OkStatus(); }
  void Unregister(Link&) override {}
};

// A model of many experts has 40,000 layers; walking past them for each that goes took half a minute.
TEST_F(SessionTest, ManyResourcesGoQuickly) {
  constexpr int kCount = 60000;
  const auto state = SessionState::Open(Options());
  ASSERT_TRUE(state.ok()) << state.status();
  std::vector<std::shared_ptr<Nothing>> resources;
  for (int i = 0; i < kCount; ++i) {
    resources.push_back(std::make_shared<Nothing>());
    ASSERT_TRUE((*state)->Add(resources.back(), absl::InfiniteFuture()).ok());
  }
  const absl::Time start = absl::Now();
  for (int i = kCount - 1; i >= 0; --i) (*state)->Remove(resources[i]);
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  EXPECT_TRUE(resources.front()->closed());
}

struct Operands {
  Region region;
  Layer layer;
  Gemm gemm() const {
    const Tensor tensor{.region = &region, .rows = 1, .columns = 8};
    return Gemm{.layer = &layer, .x = tensor, .y = tensor};
  }
};

Operands MakeOperands(Session& session) {
  return {*session.AllocateHost(4096), *session.RegisterCheckpoint("/c", "m")};
}

TEST_F(SessionTest, OpensOnTheSessionSocketAndEndsWithTheObject) {
  {
    const Session session = Open();
    EXPECT_EQ(daemon_->calls("OpenSession"), 0);
    EXPECT_EQ(daemon_->sessions(), 1u);
  }
  EXPECT_TRUE(Eventually([&] { return daemon_->sessions() == 0; }));
}

TEST_F(SessionTest, IsKeptByAStreamWhereThereIsNoSessionSocket) {
  daemon_->offer_session_socket = false;
  {
    Session session = Open();
    EXPECT_EQ(daemon_->calls("KeepSession"), 1);
    EXPECT_EQ(ReasonOf(session.AllocateHost(64).status()), "NO_SESSION_SOCKET");
    EXPECT_TRUE(session.AllocateInDaemon("cpu", 64).ok());
  }
  EXPECT_TRUE(Eventually([&] { return daemon_->sessions() == 0; }));
}

TEST_F(SessionTest, TellsThatACallWaitsForAnotherDaemon) {
  SessionOptions options = Options();
  int waits = 0;
  options.on_reconnect = [&waits] { ++waits; };
  auto session = Session::Open(options);
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(session->AllocateHost(4096).ok());
  EXPECT_EQ(waits, 0);
  Restart();
  ASSERT_TRUE(Eventually([&] { return !session->connected(); }));
  EXPECT_TRUE(session->AllocateHost(4096).ok());
  EXPECT_TRUE(session->AllocateHost(4096).ok());
  EXPECT_EQ(waits, 1);
}

TEST_F(SessionTest, NamesTheAddressWhenNothingListens) {
  daemon_->Stop();
  const absl::Status status = Session::Open(Options()).status();
  EXPECT_EQ(ReasonOf(status), "NOT_RUNNING");
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr(daemon_->socket_path()));
}

TEST_F(SessionTest, RepeatsRegistrationsOnUnavailableAfterThePauseTheDaemonNames) {
  Session session = Open();
  daemon_->Inject("RegisterRegion", {.times = 2, .reason = "NOT_READY", .retry_ms = 30});
  const absl::Time begin = absl::Now();
  EXPECT_TRUE(session.AllocateInDaemon("cpu", 64).ok());
  EXPECT_GE(absl::Now() - begin, absl::Milliseconds(60));
  EXPECT_EQ(daemon_->calls("RegisterRegion"), 3);
}

TEST_F(SessionTest, DoesNotRepeatOtherErrors) {
  Session session = Open();
  daemon_->Inject(
      "RegisterRegion",
      {.times = 1, .code = grpc::StatusCode::RESOURCE_EXHAUSTED, .reason = "QUOTA", .retry_ms = 1});
  EXPECT_EQ(ReasonOf(session.AllocateInDaemon("cpu", 64).status()), "QUOTA");
  EXPECT_EQ(daemon_->calls("RegisterRegion"), 1);
}

TEST_F(SessionTest, DoesNotRepeatARequestThatMayHaveRun) {
  Session session = Open();
  const Operands operands = MakeOperands(session);
  daemon_->Inject("Gemm", {.times = 1, .reason = "EXECUTOR_RESTART", .retry_ms = 1});
  EXPECT_EQ(ReasonOf(session.Run(operands.gemm()).status()), "EXECUTOR_RESTART");
  EXPECT_EQ(daemon_->calls("Gemm"), 1);
  EXPECT_TRUE(session.Run(operands.gemm()).ok());
}

TEST_F(SessionTest, RepeatsARequestThatWaitsForItsKernel) {
  Session session = Open();
  const Operands operands = MakeOperands(session);
  daemon_->Inject("Gemm", {.times = 2, .reason = "KERNEL_COMPILING", .retry_ms = 1});
  EXPECT_TRUE(session.Run(operands.gemm()).ok());
  EXPECT_EQ(daemon_->calls("Gemm"), 3);
}

TEST_F(SessionTest, OpensAnewWhenTheDaemonForgotTheSession) {
  Session session = Open();
  const Operands operands = MakeOperands(session);
  daemon_->ForgetSessions();
  EXPECT_TRUE(session.Run(operands.gemm()).ok());
  EXPECT_EQ(session.reopened(), 1u);
  EXPECT_EQ(daemon_->regions(), 1u);
  EXPECT_EQ(daemon_->layers(), 1u);
}

TEST_F(SessionTest, RestoresRegionsAndLayersAfterARestart) {
  Session session = Open();
  const Operands operands = MakeOperands(session);
  for (int i = 1; i <= 3; ++i) {
    Restart();
    EXPECT_TRUE(session.Run(operands.gemm()).ok());
    EXPECT_EQ(session.reopened(), static_cast<uint64_t>(i));
    EXPECT_EQ(daemon_->regions(), 1u);
  }
}

TEST_F(SessionTest, BatchInvariantNumbersChangeOnlyWhereTheClientNamesThem) {
  Session session = Open();
  const Operands operands = MakeOperands(session);
  Gemm gemm = operands.gemm();
  gemm.batch_invariant = true;
  EXPECT_EQ(session.Run(gemm)->report().armed_numerics(), 0u);
  daemon_->armed_numerics = 22;
  const auto told = session.Run(gemm);
  EXPECT_EQ(told->report().numerics(), 1u) << "told of, not used";
  EXPECT_EQ(told->report().armed_numerics(), 22u);
  gemm.numerics = told->report().armed_numerics();
  EXPECT_EQ(session.Run(gemm)->report().numerics(), 22u);
  // A restarted daemon without the kernel must not answer with other numbers.
  daemon_->armed_numerics = 0;
  Restart();
  absl::Status status = session.Run(gemm).status();
  if (ReasonOf(status) == "CONNECTION_LOST") status = session.Run(gemm).status();
  EXPECT_EQ(ReasonOf(status), "NUMERICS_NOT_READY");
  EXPECT_EQ(session.reopened(), 1u);
}

TEST_F(SessionTest, KnowsWhetherItIsConnected) {
  const Session session = Open();
  EXPECT_TRUE(session.connected());
  daemon_->Stop();
  EXPECT_TRUE(Eventually([&] { return !session.connected(); }));
}

TEST_F(SessionTest, WaitsForADaemonThatIsStarting) {
  Session session = Open();
  const Operands operands = MakeOperands(session);
  daemon_->Stop();
  std::thread starter([&] {
    absl::SleepFor(absl::Milliseconds(200));
    daemon_->Start();
  });
  EXPECT_TRUE(session.Run(operands.gemm()).ok());
  starter.join();
}

TEST_F(SessionTest, SaysThatDaemonOwnedMemoryCameBackEmpty) {
  Session session = Open();
  Region region = *session.AllocateInDaemon("cpu", 20000);
  const std::vector<std::byte> bytes = Pattern(20000);
  ASSERT_TRUE(region.Write(0, bytes).ok());
  EXPECT_GE(daemon_->calls("WriteRegion"), 5);  // at most half a message of 8192 bytes each
  std::vector<std::byte> back(bytes.size());
  ASSERT_TRUE(region.Read(0, absl::MakeSpan(back)).ok());
  EXPECT_EQ(back, bytes);
  Restart();
  EXPECT_EQ(ReasonOf(region.Read(0, absl::MakeSpan(back))), "CONTENT_LOST");
  ASSERT_TRUE(region.Write(0, bytes).ok());
  ASSERT_TRUE(region.Read(0, absl::MakeSpan(back)).ok());
  EXPECT_EQ(back, bytes);
}

TEST_F(SessionTest, RefusesAccessOutsideARegion) {
  Session session = Open();
  Region region = *session.AllocateHost(100);
  std::vector<std::byte> bytes(60);
  EXPECT_TRUE(region.Write(40, bytes).ok());
  EXPECT_EQ(ReasonOf(region.Write(41, bytes)), "REGION_OUT_OF_BOUNDS");
  EXPECT_EQ(ReasonOf(region.Read(~uint64_t{0}, absl::MakeSpan(bytes))), "REGION_OUT_OF_BOUNDS");
}

TEST_F(SessionTest, UnregistersARegionBeforeItsObjectIsGone) {
  Session session = Open();
  {
    const Region region = *session.AllocateHost(64);
    EXPECT_EQ(daemon_->regions(), 1u);
  }
  EXPECT_EQ(daemon_->regions(), 0u);
  Region first = *session.AllocateHost(64);
  first = *session.AllocateHost(64);
  EXPECT_EQ(daemon_->regions(), 1u);
}

TEST_F(SessionTest, ReleasesALayerWithItsLastUser) {
  Session session = Open();
  auto first = std::make_unique<Layer>(*session.RegisterCheckpoint("/c", "m"));
  auto second = std::make_unique<Layer>(*session.RegisterCheckpoint("/c", "m"));
  first = nullptr;
  EXPECT_EQ(daemon_->calls("ReleaseLayer"), 0);
  second = nullptr;
  EXPECT_EQ(daemon_->calls("ReleaseLayer"), 1);
}

TEST_F(SessionTest, ALayerHasTheNotesOfItsLastRegistration) {
  daemon_->notes = {"one", "two"};
  Session session = Open();
  const Operands operands = MakeOperands(session);
  EXPECT_EQ(operands.layer.notes(), daemon_->notes);
  v1::RegisterModelRequest request;
  request.set_path("/c");
  const auto model = RegisterModel(session, request);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->layers.at("m").notes(), daemon_->notes);
  daemon_->notes = {"three"};
  Restart();
  ASSERT_TRUE(session.Run(operands.gemm()).ok());
  EXPECT_EQ(operands.layer.notes(), daemon_->notes);
}

TEST_F(SessionTest, RefusesALayerWhoseSourceChangedDuringARestart) {
  Session session = Open();
  const Operands operands = MakeOperands(session);
  daemon_->Stop();
  daemon_->digest = "d2";
  daemon_->Start();
  EXPECT_EQ(ReasonOf(session.Run(operands.gemm()).status()), "SOURCE_GONE");
  EXPECT_EQ(daemon_->layers(), 0u);
}

TEST_F(SessionTest, ALayerOfTensorsNeedsItsRegionsAfterARestart) {
  Session session = Open();
  const Region memory = *session.AllocateHost(64);
  auto codes = std::make_unique<Region>(*session.AllocateHost(64));
  LayerTensors tensors{.n = 4, .k = 8};
  tensors.codes = {codes.get(), 0, 64};
  const Layer layer = *session.RegisterTensors(tensors, "cpu", "t");
  const Tensor tensor{.region = &memory, .rows = 1, .columns = 8};
  const Gemm gemm{.layer = &layer, .x = tensor, .y = tensor};
  Restart();
  EXPECT_TRUE(session.Run(gemm).ok());
  codes = nullptr;
  EXPECT_TRUE(session.Run(gemm).ok());
  Restart();
  EXPECT_EQ(ReasonOf(session.Run(gemm).status()), "SOURCE_GONE");
}

TEST_F(SessionTest, ReportsProgressOfARegistration) {
  Session session = Open();
  std::vector<int> stages;
  const auto layer = session.RegisterCheckpoint(
      "/c", "m", "", "",
      [&](const v1::RegisterLayerProgress& progress) { stages.push_back(progress.stage()); });
  ASSERT_TRUE(layer.ok());
  EXPECT_EQ(stages, (std::vector<int>{v1::RegisterLayerProgress::STAGE_LOADING,
                                      v1::RegisterLayerProgress::STAGE_READY}));
  EXPECT_EQ(layer->info().name(), "m");
}

TEST_F(SessionTest, ADeadlineSaysHowFarTheDaemonWas) {
  SessionOptions options = Options();
  options.load_timeout = absl::Milliseconds(200);
  Session session = Session::Open(options).value();
  daemon_->stuck_at.emplace();
  daemon_->stuck_at->set_stage(v1::RegisterLayerProgress::STAGE_QUANTIZING);
  daemon_->stuck_at->set_bytes_done(512);
  daemon_->stuck_at->set_bytes_total(4096);
  const absl::Status late = session.RegisterCheckpoint("/c", "m").status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  EXPECT_EQ(late.message(), "gemmd did not answer RegisterLayer of 'm' (quantizing: 512 of 4096 bytes of the weights "
                            "were done) in time");
  v1::RegisterModelRequest model;
  model.set_path("/c");
  EXPECT_EQ(RegisterModel(session, model).status().message(),
            "gemmd did not answer RegisterModel (0 of 7 modules were done; 'm': quantizing: 512 of 4096 bytes of the "
            "weights were done) in time");
}

TEST_F(SessionTest, RefusesToWorkInAChildOfFork) {
  Session session = Open();
  const Operands operands = MakeOperands(session);
  const pid_t child = fork();
  if (child == 0) {
    const absl::Status status = session.Run(operands.gemm()).status();
    _exit(ReasonOf(status) == "FORKED" ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(session.Run(operands.gemm()).ok());
}

TEST_F(SessionTest, SurvivesRestartsWhileThreadsRegisterAndRun) {
  Session session = Open();
  std::atomic<bool> stop{false};
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      while (!stop) {
        auto region = session.AllocateHost(4096);
        auto layer = session.RegisterCheckpoint("/c", "m");
        if (!region.ok() || !layer.ok()) continue;
        const Tensor tensor{.region = &*region, .rows = 1, .columns = 8};
        good += session.Run(Gemm{.layer = &*layer, .x = tensor, .y = tensor}).ok() ? 1 : 0;
      }
    });
  }
  for (int i = 0; i < 5; ++i) {
    absl::SleepFor(absl::Milliseconds(50));
    Restart();
  }
  const int before = good;
  EXPECT_TRUE(Eventually([&] { return good > before + 20; }));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(daemon_->regions(), 0u);
}

}  // namespace
}  // namespace gemmd::client
