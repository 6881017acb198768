// Compilations under way when a client gives up or the daemon stops, with the real compiler in its helper
// processes.
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/environment.h"

namespace gemmd::e2e {
namespace {

using testing::HasSubstr;

class CompileTest : public DaemonTest {
 protected:
  void SetUp() override {
    daemon_device_ = "cpu";  // a GPU's daemon compiles kernels of its own
    cache_ = directory_ + "/cache";
    StartDaemon();
  }

  std::unique_ptr<Process> StartPrewarm(const std::vector<std::string>& options = {}) {
    std::vector<std::string> words = {
        Program("gemmctl"), "--socket", socket(), "prewarm", Checkpoints() + "/awq_gemm_g128",
        "--arch",           "sm_90a"};
    words.insert(words.end(), options.begin(), options.end());
    return Start(words);
  }
  // A prewarm whose compilers are all busy, with more work waiting.
  std::unique_ptr<Process> StartLongPrewarm() {
    auto prewarm = StartPrewarm();
    const bool busy = Within(absl::Seconds(60), [&] {
      return !prewarm->running() || (Metric("gemmd_compile_queue_depth") > 0 && !Helpers().empty());
    });
    EXPECT_TRUE(busy);
    if (!prewarm->running()) return nullptr;
    return prewarm;
  }
  bool HasCompiler() const {
    std::ifstream file(log());
    const std::string said((std::istreambuf_iterator<char>(file)), {});
    return said.find("NVRTC_MISSING") == std::string::npos;
  }

  double Metric(const std::string& name) {
    const auto admin = client::Admin::Open(socket());
    const auto metrics = admin->Metrics();
    EXPECT_TRUE(metrics.ok()) << metrics.status();
    if (!metrics.ok()) return -1;
    const std::string& text = metrics->text();
    const size_t at = text.find(absl::StrCat("\n", name, " "));
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  }

  std::set<std::string> Helpers() const {
    std::set<std::string> pids;
    std::error_code error;
    const std::string tasks = absl::StrCat("/proc/", daemon_->pid(), "/task");
    for (const auto& task : std::filesystem::directory_iterator(tasks, error)) {
      std::ifstream file(task.path() / "children");
      for (std::string pid; file >> pid;) pids.insert(pid);
    }
    return pids;
  }
  // Of `pids`, the processes that are there.
  static size_t Alive(const std::set<std::string>& pids) {
    size_t alive = 0;
    for (const std::string& pid : pids) alive += std::filesystem::exists("/proc/" + pid);
    return alive;
  }
};

TEST_F(CompileTest, DaemonStopsAtOnceWhileKernelsCompile) {
  auto prewarm = StartLongPrewarm();
  if (!HasCompiler()) GTEST_SKIP() << "the daemon found no NVRTC";
  ASSERT_NE(prewarm, nullptr);
  const std::set<std::string> helpers = Helpers();
  const absl::Time start = absl::Now();
  EXPECT_EQ(StopDaemon(absl::Seconds(30)), 0);
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  EXPECT_TRUE(Within(absl::Seconds(2), [&] { return Alive(helpers) == 0; }));
  EXPECT_NE(prewarm->Wait(absl::Seconds(10)), 0);
  for (const auto& file : std::filesystem::directory_iterator(cache_)) {
    EXPECT_NE(file.path().extension(), ".tmp");
    EXPECT_NE(file.path().extension(), ".lock");
  }
}

TEST_F(CompileTest, CompilersOfAClientThatIsGoneAreStopped) {
  auto prewarm = StartLongPrewarm();
  if (!HasCompiler()) GTEST_SKIP() << "the daemon found no NVRTC";
  ASSERT_NE(prewarm, nullptr);
  const double failed = Metric("gemmd_compile_total{result=\"failed\"}");
  const std::set<std::string> helpers = Helpers();
  prewarm->Signal(SIGKILL);
  EXPECT_EQ(prewarm->Wait(absl::Seconds(10)), 128 + SIGKILL);
  EXPECT_TRUE(Within(absl::Seconds(5), [&] {
    return Metric("gemmd_compile_queue_depth") == 0 && Alive(helpers) < helpers.size();
  })) << "idle helpers stay half a minute: one that is gone was ended at work";
  EXPECT_EQ(Metric("gemmd_compile_total{result=\"failed\"}"), failed);
  EXPECT_EQ(Status().sessions(), 0u);
}

TEST_F(CompileTest, PrewarmOfFewTokensCompilesTheirKernelsOnly) {
  auto prewarm = StartPrewarm({"--m", "1-8"});
  const int code = prewarm->Wait(absl::Minutes(3));
  if (!HasCompiler()) GTEST_SKIP() << "the daemon found no NVRTC";
  EXPECT_EQ(code, 0);
  const std::string summary = prewarm->Rest();
  // Two generic kernels, the one that packs and six of mixtures of experts, and for two types of x the first
  // of several ranges of M and the batch-invariant one.
  EXPECT_THAT(summary, HasSubstr("13 compiled"));
  auto wrong = StartPrewarm({"--m", "8-1"});
  EXPECT_EQ(wrong->Wait(absl::Seconds(30)), 2);
}

}  // namespace
}  // namespace gemmd::e2e
