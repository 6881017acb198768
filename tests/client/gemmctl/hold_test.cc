// gemmctl register --hold and signals: they cancel until the layer is held, then they release it.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/client/fake_daemon.h"
#include "tests/client/gemmctl/tool.h"

namespace gemmd::gemmctl {
namespace {

using testing::ExitedWithCode;
using testing::KilledBySignal;

class HoldDeathTest : public testing::Test {
 protected:
  HoldDeathTest() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    char pattern[] = "/tmp/gmhXXXXXX";
    directory_ = mkdtemp(pattern);
    daemon_ = std::make_unique<client::FakeDaemon>(directory_);
    daemon_->device = "cpu";
    daemon_->Start();
    int ends[2];
    if (pipe(ends) != 0) std::abort();
    said_ = ends[0];
    err_ = fdopen(ends[1], "w");
    std::setvbuf(err_, nullptr, _IONBF, 0);
  }
  ~HoldDeathTest() override {
    daemon_ = nullptr;
    std::filesystem::remove_all(directory_);
    std::fclose(err_);
    close(said_);
  }

  // Ends this process: with the tool's exit code, or by the signal.
  [[noreturn]] void HoldAndSignal(int number, const std::function<void()>& wait) {
    std::thread([this, number, &wait] {
      wait();
      std::filesystem::remove_all(directory_);
      kill(getpid(), number);
    }).detach();
    std::FILE* const out = std::tmpfile();
    _exit(RunGemmctl({"--socket", daemon_->socket_path(), "register", "p", "m", "--hold"}, out, err_));
  }
  void WaitUntilItLoads() {
    while (daemon_->calls("RegisterLayer") == 0) absl::SleepFor(absl::Milliseconds(5));
  }
  void WaitUntilItSays(const std::string& text) {
    std::string all;
    for (char c = 0; all.find(text) == std::string::npos && read(said_, &c, 1) == 1;) all += c;
  }

  std::string directory_;
  std::unique_ptr<client::FakeDaemon> daemon_;
  std::FILE* err_;
  int said_;
};

TEST_F(HoldDeathTest, ASignalCancelsTheLoading) {
  daemon_->Inject("RegisterLayer", {.times = 100, .reason = "BUSY", .retry_ms = 900});
  for (const int number : {SIGINT, SIGTERM}) {
    EXPECT_EXIT(HoldAndSignal(number, [this] { WaitUntilItLoads(); }), KilledBySignal(number), "");
  }
}

TEST_F(HoldDeathTest, ASignalCancelsTheWaitForTheNextDaemon) {
  daemon_->Inject("RegisterLayer", {.times = 100, .reason = "BUSY", .retry_ms = 200});
  const auto wait = [this] {
    WaitUntilItLoads();
    daemon_->Stop();
    WaitUntilItSays("waiting up to 10s");
  };
  EXPECT_EXIT(HoldAndSignal(SIGINT, wait), KilledBySignal(SIGINT), "");
}

TEST_F(HoldDeathTest, ASignalReleasesWhatIsHeld) {
  for (const int number : {SIGINT, SIGTERM}) {
    EXPECT_EXIT(HoldAndSignal(number, [this] { WaitUntilItSays("holding the layer"); }), ExitedWithCode(kDone), "");
  }
}

}  // namespace
}  // namespace gemmd::gemmctl
