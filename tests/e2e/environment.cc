#include "tests/e2e/environment.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "absl/time/clock.h"

namespace gemmd::e2e {

std::string Variable(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : std::string(value);
}

std::string Program(const std::string& name) {
  return Variable("GEMMD_E2E_BIN", GEMMD_BIN_DIR) + "/" + name;
}

std::string Data() { return Variable("GEMMD_TEST_DATA", GEMMD_TEST_DATA); }

std::string Checkpoints() { return std::filesystem::canonical(Data() + "/checkpoints").string(); }

std::string Source() { return Variable("GEMMD_E2E_SOURCE", GEMMD_SOURCE_DIR); }

bool OnCuda() { return Variable("GEMMD_E2E_DEVICE", "cpu") == "cuda"; }

DaemonTest::DaemonTest() {
  char pattern[] = "/tmp/gme.XXXXXX";
  directory_ = mkdtemp(pattern);
  std::filesystem::create_directory(directory_ + "/ckpt");
  daemon_device_ = OnCuda() ? "auto" : "cpu";
  cache_ = Variable("GEMMD_E2E_CACHE", directory_ + "/cache");
}

DaemonTest::~DaemonTest() {
  daemon_ = nullptr;
  if (HasFailure()) std::cerr << std::ifstream(log()).rdbuf();
  std::filesystem::remove_all(directory_);
}

std::string DaemonTest::log() const { return Variable("GEMMD_E2E_LOG", directory_ + "/log"); }

void DaemonTest::LaunchDaemon() {
  std::vector<std::string> words = daemon_prefix_;
  words.insert(words.end(), {Program("gemmd"), "--socket=" + socket(), "--device=" + daemon_device_,
                             "--checkpoint_roots=" + Checkpoints() + "," + directory_ + "/ckpt",
                             "--metrics_address=", "--log_format=text"});
  if (!cache_.empty()) words.push_back("--cache_dir=" + cache_);
  daemon_ = Start(words, daemon_environment_);
}

void DaemonTest::StartDaemon() {
  LaunchDaemon();
  const auto admin = client::Admin::Open(socket());
  ASSERT_TRUE(admin.ok()) << admin.status();
  ASSERT_TRUE(Within(absl::Seconds(60), [&] {
    return !daemon_->running() || client::Admin::Open(socket())->Greet().ok();
  }));
  ASSERT_TRUE(daemon_->running()) << "gemmd exited with code " << daemon_->Wait(absl::Seconds(1));
}

void DaemonTest::KillDaemon() {
  daemon_->Signal(SIGKILL);
  EXPECT_EQ(daemon_->Wait(absl::Seconds(10)), 128 + SIGKILL);
}

int DaemonTest::StopDaemon(absl::Duration limit) {
  daemon_->Signal(SIGTERM);
  return daemon_->Wait(limit);
}

std::unique_ptr<Process> DaemonTest::Start(const std::vector<std::string>& argv,
                                           const std::vector<std::string>& environment) {
  return std::make_unique<Process>(argv, environment, log());
}

std::unique_ptr<Process> DaemonTest::StartRole(const std::string& role) {
  return Start({std::filesystem::read_symlink("/proc/self/exe").string()},
               {"GEMMD_E2E_ROLE=" + role, "GEMMD_SOCKET=" + socket()});
}

v1::GetStatusResponse DaemonTest::Status() {
  const auto admin = client::Admin::Open(socket());
  const auto status =
      admin.ok() ? admin->Status() : absl::StatusOr<v1::GetStatusResponse>(admin.status());
  EXPECT_TRUE(status.ok()) << status.status();
  return status.ok() ? *status : v1::GetStatusResponse();
}

}  // namespace gemmd::e2e
