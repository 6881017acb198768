// What    Where programs and data are, the device under test, and a daemon in a folder of its own.
// Knobs   GEMMD_E2E_DEVICE  cpu (default) or cuda
//         GEMMD_E2E_BIN     folder of gemmd, gemmctl, gemmd_quickstart_client
//         GEMMD_TEST_DATA   tests/data; GEMMD_E2E_SOURCE the source tree (protos, Python clients)
//         GEMMD_E2E_PYTHON  interpreter with grpc, protobuf and numpy (default /usr/bin/python3)
//         GEMMD_E2E_LOG     file that the stderr of all processes is appended to (default: in the
//         folder)
#ifndef GEMMD_TESTS_E2E_ENVIRONMENT_H_
#define GEMMD_TESTS_E2E_ENVIRONMENT_H_

#include <memory>
#include <string>
#include <vector>

#include "client/admin.h"
#include "gtest/gtest.h"
#include "tests/e2e/process.h"

namespace gemmd::e2e {

std::string Variable(const char* name, const std::string& otherwise);
std::string Program(const std::string& name);
std::string Data();         // tests/data
std::string Checkpoints();  // tests/data/checkpoints
std::string Source();
bool OnCuda();

// Polls until `condition` holds, at most `limit`.
template <typename Condition>
bool Within(absl::Duration limit, Condition condition) {
  const absl::Time deadline = absl::Now() + limit;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return true;
}

// A daemon per test, in a fresh folder with a short path.
class DaemonTest : public testing::Test {
 protected:
  DaemonTest();
  ~DaemonTest() override;

  void LaunchDaemon();
  // And waits until it answers.
  void StartDaemon();
  void KillDaemon();
  int StopDaemon(absl::Duration limit);  // SIGTERM; exit code

  std::unique_ptr<Process> Start(const std::vector<std::string>& argv,
                                 const std::vector<std::string>& environment = {});
  // This program again, in a role of roles.h.
  std::unique_ptr<Process> StartRole(const std::string& role);

  v1::GetStatusResponse Status();
  std::string socket() const { return directory_ + "/g.sock"; }
  std::string log() const;

  std::string directory_;
  std::string daemon_device_;  // of the daemon's flag --device
  // The daemon's kernel cache; empty: its default. On a GPU, where the first compilation takes seconds, it outlives the test.
  std::string cache_;
  std::vector<std::string> daemon_prefix_;       // words before the daemon's program
  std::vector<std::string> daemon_environment_;  // NAME=VALUE
  std::unique_ptr<Process> daemon_;
};

}  // namespace gemmd::e2e

#endif  // GEMMD_TESTS_E2E_ENVIRONMENT_H_
