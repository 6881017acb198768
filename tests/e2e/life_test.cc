// Clients and daemons that come, share, die and come back, as processes on real sockets.
#include <signal.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/environment.h"

namespace gemmd::e2e {
namespace {

constexpr absl::Duration kReady = absl::Seconds(60);  // sanitizers, and compilation on a GPU
constexpr absl::Duration kGivenBack = absl::Seconds(2);
constexpr uint32_t kMainJobLayers = 7;

class LifeTest : public DaemonTest {
 protected:
  LifeTest() { StartDaemon(); }

  // SIGTERM; the client must have been right all the time.
  static void Finish(Process& client) {
    client.Signal(SIGTERM);
    EXPECT_EQ(client.Wait(absl::Seconds(30)), 0) << client.Rest();
  }
  std::unique_ptr<Process> StartQuickstart(const std::string& name) {
    return Start({Program("gemmd_quickstart_client"), "--socket", socket(), "--name", name,
                  "--wait-for", "2", "--data", Checkpoints()});
  }
};

TEST_F(LifeTest, TwoClientsDoTheMainJobOnOneCopyOfEachLayer) {
  auto first = StartQuickstart("first");
  auto second = StartQuickstart("second");
  EXPECT_TRUE(Within(kReady, [&] {
    const v1::GetStatusResponse status = Status();
    return status.layers() == kMainJobLayers && status.layer_references() == 2 * kMainJobLayers;
  }));
  EXPECT_EQ(first->Wait(absl::Minutes(3)), 0) << first->Rest();
  EXPECT_EQ(second->Wait(absl::Minutes(3)), 0) << second->Rest();
  EXPECT_TRUE(Within(kGivenBack, [&] { return Status().sessions() == 0; }));
  EXPECT_EQ(Status().layers(), 0u);
  EXPECT_EQ(Status().regions(), 0u);
}

class KilledClientTest : public LifeTest, public testing::WithParamInterface<const char*> {};

TEST_P(KilledClientTest, GivesEverythingBackAndTheOtherNoticesNothing) {
  auto steady = StartRole("steady");
  ASSERT_TRUE(steady->ReadUntil("ready", kReady));
  const v1::GetStatusResponse before = Status();
  auto victim = StartRole(GetParam());
  ASSERT_TRUE(victim->ReadUntil("ready", kReady));
  absl::SleepFor(absl::Milliseconds(100));
  victim->Signal(SIGKILL);
  ASSERT_EQ(victim->Wait(absl::Seconds(10)), 128 + SIGKILL) << victim->Rest();
  EXPECT_TRUE(Within(kGivenBack, [&] {
    const v1::GetStatusResponse now = Status();
    return now.sessions() == before.sessions() && now.regions() == before.regions() &&
           now.region_bytes() == before.region_bytes() && now.layers() == before.layers();
  })) << Status().ShortDebugString();
  EXPECT_EQ(Status().layer_references(), before.layer_references());
  absl::SleepFor(absl::Milliseconds(100));
  Finish(*steady);
  EXPECT_TRUE(daemon_->running());
}

INSTANTIATE_TEST_SUITE_P(Roles, KilledClientTest,
                         testing::Values("busy", "registering", "hoarding"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(LifeTest, ClientsRecoverFromTwentyKillsOfTheDaemon) {
  auto first = StartRole("recovering");
  auto second = StartRole("recovering");
  ASSERT_TRUE(first->ReadUntil("ready", kReady));
  ASSERT_TRUE(second->ReadUntil("ready", kReady));
  for (int round = 1; round <= 20; ++round) {
    KillDaemon();
    ASSERT_NO_FATAL_FAILURE(StartDaemon());
    ASSERT_TRUE(first->ReadUntil(absl::StrCat("recovered ", round), absl::Seconds(5))) << round;
    ASSERT_TRUE(second->ReadUntil(absl::StrCat("recovered ", round), absl::Seconds(5))) << round;
  }
  EXPECT_EQ(Status().layers(), 1u);
  EXPECT_EQ(Status().layer_references(), 2u);
  Finish(*first);
  Finish(*second);
}

TEST_F(LifeTest, SigtermDrainsAndExitsWithZero) {
  auto client = StartRole("recovering");
  ASSERT_TRUE(client->ReadUntil("ready", kReady));
  EXPECT_EQ(StopDaemon(absl::Seconds(20)), 0);
  struct stat info {};
  EXPECT_NE(stat(socket().c_str(), &info), 0) << "the socket file stays";
  ASSERT_NO_FATAL_FAILURE(StartDaemon());
  EXPECT_TRUE(client->ReadUntil("recovered 1", absl::Seconds(10)));
  Finish(*client);
}

TEST_F(LifeTest, DrainByCommandFinishesToo) {
  auto drain = Start({Program("gemmctl"), "--socket", socket(), "drain", "--wait"});
  EXPECT_EQ(drain->Wait(absl::Seconds(30)), 0) << drain->Rest();
  EXPECT_EQ(daemon_->Wait(absl::Seconds(10)), 0);
}

TEST_F(LifeTest, ASecondDaemonOnTheSameSocketLeavesTheFirstAlone) {
  auto second = Start({Program("gemmd"), "--socket=" + socket(), "--device=cpu",
                       "--metrics_address=", "--cache_dir=" + directory_ + "/cache2"});
  EXPECT_EQ(second->Wait(absl::Seconds(20)), 75);
  EXPECT_TRUE(daemon_->running());
  EXPECT_EQ(Status().pid(), static_cast<uint32_t>(daemon_->pid()));
}

}  // namespace
}  // namespace gemmd::e2e
