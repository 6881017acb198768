// Requests of 2^27 rows on the CPU device, which would take it minutes: they stop when their client
// is out of time or gone, and take no memory of the daemon in proportion to their rows.
#include <signal.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "kernels/base/status.h"
#include "tests/e2e/environment.h"
#include "tests/e2e/roles.h"

namespace gemmd::e2e {
namespace {

constexpr absl::Duration kAllGivenBack = absl::Seconds(2);

class EnormousTest : public DaemonTest {
 protected:
  EnormousTest() { StartDaemon(); }

  // Private memory that the daemon may write to, touched or not. What clients share is not in it.
  uint64_t PrivateBytes() const {
    std::ifstream status(absl::StrCat("/proc/", daemon_->pid(), "/status"));
    for (std::string line; std::getline(status, line);) {
      uint64_t kilobytes = 0;
      if (absl::StartsWith(line, "VmData:") &&
          absl::SimpleAtoi(line.substr(7, line.size() - 10), &kilobytes)) {
        return kilobytes << 10;
      }
    }
    ADD_FAILURE() << "the daemon's /proc/PID/status has no VmData";
    return 0;
  }

  // Requests that the device began and ended with `code`.
  int Ended(const std::string& code) {
    const auto metrics = client::Admin::Open(socket())->Metrics();
    EXPECT_TRUE(metrics.ok()) << metrics.status();
    double count = 0;
    for (const absl::string_view line : absl::StrSplit(metrics->text(), '\n')) {
      if (!absl::StartsWith(line, "gemmd_ops_total{") ||
          !absl::StrContains(line, absl::StrCat("code=\"", code, "\""))) {
        continue;
      }
      double value = 0;
      EXPECT_TRUE(absl::SimpleAtod(line.substr(line.rfind(' ') + 1), &value)) << line;
      count += value;
    }
    return static_cast<int>(count);
  }
};

TEST_F(EnormousTest, StopsAtItsDeadlineWithinBoundedMemory) {
  ASSERT_EQ(setenv("GEMMD_SOCKET", socket().c_str(), 1), 0);
  const auto job = MakeEnormousJob();
  unsetenv("GEMMD_SOCKET");
  ASSERT_TRUE(job.ok()) << job.status();
  client::Gemm small = (*job)->gemm;
  small.x.rows = small.y.rows = 32;
  ASSERT_TRUE((*job)->session.Run(small).ok());  // the BLAS takes its buffers
  const uint64_t before = PrivateBytes();
  std::atomic<uint64_t> peak{before};
  std::atomic<bool> done{false};
  std::thread sampler([&] {
    for (; !done; absl::SleepFor(absl::Milliseconds(2)))
      peak = std::max(peak.load(), PrivateBytes());
  });
  const auto late = (*job)->session.Run((*job)->gemm, absl::Now() + absl::Milliseconds(500));
  const absl::Time answered = absl::Now();
  // One session's requests run one after the other.
  EXPECT_TRUE((*job)->session.Run(small, answered + kAllGivenBack).ok());
  done = true;
  sampler.join();
  EXPECT_EQ(late.status().code(), absl::StatusCode::kDeadlineExceeded) << late.status();
  RecordProperty("private_bytes_more", std::to_string(peak - before));
  // A single double per row would be 2^30 bytes. A slab of rows and its product take 32 MiB, a
  // thread's stack 8 MiB, a malloc arena 64 MiB.
  EXPECT_LT(peak - before, uint64_t{256} << 20);
}

TEST_F(EnormousTest, StopsWhenItsClientIsKilled) {
  auto client = StartRole("enormous");
  ASSERT_TRUE(client->ReadUntil("ready", absl::Seconds(60)));
  ASSERT_TRUE(Within(absl::Seconds(10), [&] { return Status().requests_total() == 1; }));
  absl::SleepFor(absl::Milliseconds(200));
  client->Signal(SIGKILL);
  ASSERT_EQ(client->Wait(absl::Seconds(10)), 128 + SIGKILL);
  EXPECT_TRUE(Within(kAllGivenBack, [&] { return Ended("CANCELLED") + Ended("ABORTED") == 1; }));
  EXPECT_EQ(Ended("OK"), 0);
}

}  // namespace
}  // namespace gemmd::e2e
