#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/exit_codes.h"
#include "tests/server/fixture.h"
#include "tests/support/fake_device.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class MetricsTest : public DaemonTest {
 protected:
  void StartWithEndpoint() { StartDaemon({{"metrics_address", "127.0.0.1:0"}}); }

  std::string Text() const {
    v1::GetMetricsResponse response;
    EXPECT_TRUE(admin_->GetMetrics(Context("").get(), {}, &response).ok());
    return response.text();
  }

  std::string Scrape() const {
    const std::string& address = daemon_->metrics_address();
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) << address;
    const UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
    EXPECT_EQ(send(fd.get(), request.data(), request.size(), 0),
              static_cast<ssize_t>(request.size()));
    std::string answer;
    char data[4096];
    for (ssize_t size; (size = recv(fd.get(), data, sizeof data, 0)) > 0;)
      answer.append(data, size);
    return answer;
  }
};

TEST_F(MetricsTest, TheEndpointServesSeriesBeforeAnythingHappens) {
  StartWithEndpoint();
  const std::string text = Scrape();
  for (const char* series :
       {"gemmd_build_info{version=\"0.1.0\"} 1", "gemmd_up_gpus 0",
        "gemmd_device_ready{device=\"cpu\"} 1",
        "gemmd_ops_total{code=\"OK\",device=\"cpu\",kind=\"dense\"} 0",
        "gemmd_op_queue_seconds_count{device=\"cpu\",kind=\"moe\"} 0",
        "gemmd_session_ends_total{reason=\"eof\"} 0",
        "gemmd_rejects_total{reason=\"NO_SESSION\"} 0",
        "gemmd_rpc_started_total{method=\"gemmd.v1.GemmService/Gemm\"} 0",
        "gemmd_sessions{mode=\"socket\"} 0", "gemmd_draining 0",
        "gemmd_cache_integrity_failures_total{kind=\"damaged\"} 0",
        "gemmd_cache_integrity_failures_total{kind=\"stale\"} 0",
        "gemmd_cache_integrity_failures_total{kind=\"foreign\"} 0",
        "gemmd_compile_helper_deaths_total 0", "gemmd_log_dropped_total 0", "process_open_fds "}) {
    EXPECT_THAT(text, HasSubstr(series));
  }
}

TEST_F(MetricsTest, EventsAreCounted) {
  const std::string token = OpenBySocket();
  const v1::GemmRequest gemm = MakeGemm(token, RegisterLayer(token).layer_id(), 2);
  v1::GemmResponse response;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(gemms_->Gemm(Context(token).get(), gemm, &response).ok());
  ASSERT_FALSE(gemms_->Gemm(Context("").get(), gemm, &response).ok());
  const std::string text = Text();
  for (const char* series :
       {"gemmd_ops_total{code=\"OK\",device=\"cpu\",kind=\"dense\"} 3",
        "gemmd_op_host_seconds_count{device=\"cpu\",kind=\"dense\"} 3",
        "gemmd_layers{device=\"cpu\"} 1", "gemmd_sessions{mode=\"socket\"} 1",
        "gemmd_rejects_total{reason=\"NO_SESSION\"} 1",
        "gemmd_rpc_started_total{method=\"gemmd.v1.GemmService/Gemm\"} 4",
        "gemmd_rpc_duration_seconds_count{code=\"OK\",method=\"gemmd.v1.GemmService/Gemm\"} 3",
        "gemmd_layer_loads_total{code=\"OK\",format=\"tensors\"} 1"}) {
    EXPECT_THAT(text, HasSubstr(series));
  }
}

TEST_F(MetricsTest, ManySessionsAndLayersAddNoSeries) {
  const auto count = [this] {
    const std::vector<std::string> lines = absl::StrSplit(Text(), '\n');
    return lines.size();
  };
  RegisterLayer(OpenBySocket("first"));
  count();
  const size_t before = count();
  for (int i = 0; i < 30; ++i)
    RegisterLayer(OpenBySocket(absl::StrCat("worker", i)), absl::StrCat("layer", i));
  EXPECT_EQ(count(), before);
  EXPECT_LT(before, 2000u);
}

TEST_F(MetricsTest, AnAddressInUseStopsTheStartAndLeavesNoSocket) {
  StartWithEndpoint();
  TempDir other;
  FlagValues flags = FlagsFor(other);
  flags["metrics_address"] = daemon_->metrics_address();
  const auto config = LoadConfig(flags, {[](const std::string&) { return std::nullopt; }, 0});
  ASSERT_TRUE(config.ok());
  const auto second = Daemon::Start(*config, [](absl::Duration) {});
  EXPECT_EQ(ExitCodeOf(second.status()), kExitCannotCreate);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(daemon_->metrics_address()));
  EXPECT_FALSE(std::filesystem::exists(other / "g.sock"));
  EXPECT_FALSE(std::filesystem::exists(other / "s.sock"));
}

class DeviceWithKernels : public testing::FakeDevice {
 public:
  using FakeDevice::FakeDevice;
  DeviceKernelCounts kernel_counts() const override { return {5, 2, 20, 1}; }
};

TEST(SnapshotTest, CountsKernelsOfGpusByResult) {
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(std::make_unique<DeviceWithKernels>(std::make_shared<testing::FakeState>()));
  const Node node({}, std::move(devices), nullptr);
  const std::string text =
      MetricsText({std::make_shared<Snapshot>(&node, [] { return LogCounts(); })});
  EXPECT_THAT(text, HasSubstr("gemmd_specialised_total{device=\"cuda:fake\",result=\"ok\"} 5"));
  EXPECT_THAT(text, HasSubstr("gemmd_specialised_total{device=\"cuda:fake\",result=\"failed\"} 2"));
  EXPECT_THAT(text, HasSubstr("gemmd_self_tests_total{device=\"cuda:fake\",result=\"ok\"} 19"));
  EXPECT_THAT(text, HasSubstr("gemmd_self_tests_total{device=\"cuda:fake\",result=\"failed\"} 1"));
}

TEST(MetricChildrenTest, AnUnboundedLabelBecomesOther) {
  Metrics metrics("1", {"cpu"});
  for (int i = 0; i < 3000; ++i) metrics.OnRejected(absl::StrCat("REASON_", i));
  const std::string text = MetricsText({metrics.registry()});
  EXPECT_THAT(text, HasSubstr("gemmd_rejects_total{reason=\"other\"}"));
  EXPECT_THAT(text, Not(HasSubstr("REASON_2999")));
}

}  // namespace
}  // namespace gemmd
