// Real daemons: exec, signals, exit codes, files left behind.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "server/exit_codes.h"
#include "server/unix_socket.h"
#include "tests/server/fixture.h"

namespace gemmd {
namespace {

using ::testing::HasSubstr;

const std::string kDeploy = GEMMD_TEST_DATA "/../../deploy";

class ProcessTest : public ::testing::Test {
 protected:
  struct Process {
    pid_t pid = -1;
    std::string output;  // file of stdout and stderr
  };

  Process Spawn(std::vector<std::string> arguments, std::vector<std::string> environment = {}) {
    Process process;
    process.output = directory_ / ("output" + std::to_string(++spawned_));
    arguments.insert(arguments.begin(), GEMMD_BINARY);
    environment.insert(environment.end(),
                       {"PATH=/usr/bin:/bin", "XDG_RUNTIME_DIR=" + directory_ / "run",
                        "XDG_CACHE_HOME=" + directory_ / "cache"});
    for (const std::string name :
         {"ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"}) {
      if (const char* value = getenv(name.c_str())) environment.push_back(name + "=" + value);
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, process.output.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    EXPECT_EQ(posix_spawn(&process.pid, GEMMD_BINARY, &actions, nullptr, Pointers(arguments).data(),
                          Pointers(environment).data()),
              0);
    posix_spawn_file_actions_destroy(&actions);
    return process;
  }

  // The arguments of a daemon that works in the directory.
  std::vector<std::string> Daemon(std::vector<std::string> more = {}) const {
    std::vector<std::string> all = {"--device=cpu", "--cpu_threads=1", "--metrics_address="};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  static int Wait(const Process& process, absl::Duration within = absl::Seconds(20)) {
    const absl::Time deadline = absl::Now() + within;
    int status = 0;
    while (waitpid(process.pid, &status, WNOHANG) == 0) {
      if (absl::Now() > deadline) {
        kill(process.pid, SIGKILL);
        waitpid(process.pid, &status, 0);
        ADD_FAILURE() << "the process did not end in time: " << Text(process);
        return -1;
      }
      absl::SleepFor(absl::Milliseconds(5));
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  static std::string Text(const Process& process) {
    std::ifstream file(process.output);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  static bool WaitFor(const Process& process, const std::string& text) {
    for (int i = 0; i < 2000; ++i) {
      if (Text(process).find(text) != std::string::npos) return true;
      absl::SleepFor(absl::Milliseconds(5));
    }
    ADD_FAILURE() << "no '" << text << "' in: " << Text(process);
    return false;
  }

  int Run(std::vector<std::string> arguments, std::string* text = nullptr) {
    const Process process = Spawn(std::move(arguments));
    const int code = Wait(process);
    if (text != nullptr) *text = Text(process);
    return code;
  }

  std::string socket() const { return directory_ / "run/gemmd/gemmd.sock"; }

  TempDir directory_;

 private:
  static std::vector<char*> Pointers(std::vector<std::string>& strings) {
    std::vector<char*> pointers;
    for (std::string& string : strings) pointers.push_back(string.data());
    pointers.push_back(nullptr);
    return pointers;
  }
  int spawned_ = 0;
};

TEST_F(ProcessTest, HelpReadsLikeAManualPage) {
  std::string text;
  EXPECT_EQ(Run({"--help"}, &text), 0);
  for (const char* part :
       {"NAME", "SYNOPSIS", "--socket=VALUE", "--check_config", "EXIT STATUS", "max_sessions"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, HasSubstr("SIGTERM, SIGINT and SIGHUP drain"));
  EXPECT_EQ(Run({"--version"}, &text), 0);
  EXPECT_EQ(text, "gemmd 0.1.0\n");
}

TEST_F(ProcessTest, BadCommandLinesHaveTheirExitCodes) {
  std::string text;
  EXPECT_EQ(Run({"--no_such_flag"}, &text), kExitBadFlag);
  EXPECT_THAT(text, HasSubstr("no_such_flag"));
  EXPECT_EQ(Run({"--device=tpu"}, &text), kExitBadFlag);
  EXPECT_THAT(text, HasSubstr("'tpu' is none of auto, cpu, cuda"));
  for (const char* empty : {"--=", "--=x", "-="}) {
    EXPECT_EQ(Run({empty}, &text), kExitBadFlag) << empty;
    EXPECT_THAT(text, HasSubstr("names no flag"));
  }
  EXPECT_EQ(Run({"serve"}, &text), kExitUsage);
  EXPECT_EQ(Run({"--config=" + directory_ / "none.yaml"}, &text), kExitBadConfig);
}

TEST_F(ProcessTest, OddSettingsAreWarnedAbout) {
  const std::string nowhere = directory_ / "nowhere";
  const Process daemon = Spawn(Daemon({"--checkpoint_roots=" + nowhere}), {"GEMMD_MAX_SESSION=3"});
  ASSERT_TRUE(WaitFor(daemon, "listening on"));
  kill(daemon.pid, SIGTERM);
  EXPECT_EQ(Wait(daemon), 0);
  EXPECT_THAT(Text(daemon), HasSubstr(nowhere));
  EXPECT_THAT(Text(daemon), HasSubstr("the nearest is GEMMD_MAX_SESSIONS"));
}

TEST_F(ProcessTest, CheckConfigPrintsValuesWithTheirOrigin) {
  std::ofstream(directory_ / "c.yaml") << "cpu_threads: 2\n";
  std::string text;
  EXPECT_EQ(
      Run({"--config=" + directory_ / "c.yaml", "--check_config", "--log_level=debug"}, &text), 0);
  EXPECT_THAT(text, HasSubstr("cpu_threads: 2  # file\n"));
  EXPECT_THAT(text, HasSubstr("log_level: debug  # flag\n"));
  EXPECT_THAT(text, HasSubstr("device: auto  # default\n"));
  EXPECT_FALSE(std::filesystem::exists(socket()));
}

TEST_F(ProcessTest, CheckConfigFailsWhereACheckpointRootIsNoDirectory) {
  const std::string file = directory_ / "file";
  std::ofstream(file) << "no directory";
  const std::string missing = directory_ / "missing";
  std::string text;
  EXPECT_EQ(Run({"--check_config", "--checkpoint_roots=" + directory_.path().string()}, &text), 0);
  EXPECT_EQ(Run({"--check_config", "--checkpoint_roots=" + missing + "," + file}, &text),
            kExitBadConfig);
  EXPECT_THAT(text, HasSubstr(missing + ": No such file"));
  EXPECT_THAT(text, HasSubstr(file + ": not a directory"));
}

TEST_F(ProcessTest, ServesUntilSigtermThenExitsWithZeroAndLeavesNoSocket) {
  const Process daemon = Spawn(Daemon());
  ASSERT_TRUE(WaitFor(daemon, "listening on " + socket()));
  struct stat info;
  ASSERT_EQ(stat(socket().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0660u);
  ASSERT_EQ(stat((directory_ / "run/gemmd").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, geteuid() == 0 ? 0750u : 0700u);
  kill(daemon.pid, SIGTERM);
  EXPECT_EQ(Wait(daemon, absl::Seconds(5)), 0) << Text(daemon);
  EXPECT_FALSE(std::filesystem::exists(socket()));
  EXPECT_FALSE(std::filesystem::exists(directory_ / "run/gemmd/session.sock"));
}

TEST_F(ProcessTest, EverySignalThatTheManualNamesDrainsIt) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    const Process daemon = Spawn(Daemon());
    ASSERT_TRUE(WaitFor(daemon, "listening on " + socket()));
    kill(daemon.pid, signal);
    EXPECT_EQ(Wait(daemon, absl::Seconds(5)), 0) << Text(daemon);
    EXPECT_THAT(Text(daemon), HasSubstr("stopped serving"));
  }
}

// Of a write beyond `ulimit -f`, or beyond a pipe: the write fails, and that is all.
TEST_F(ProcessTest, SignalsOfWritesDoNotEndIt) {
  const Process daemon = Spawn(Daemon());
  ASSERT_TRUE(WaitFor(daemon, "listening on " + socket()));
  kill(daemon.pid, SIGXFSZ);
  kill(daemon.pid, SIGPIPE);
  kill(daemon.pid, SIGTERM);
  EXPECT_EQ(Wait(daemon, absl::Seconds(5)), 0) << Text(daemon);
}

TEST_F(ProcessTest, ASecondInstanceIsRefusedAndTheFirstLives) {
  const Process first = Spawn(Daemon());
  ASSERT_TRUE(WaitFor(first, "listening on"));
  std::string text;
  EXPECT_EQ(Run(Daemon(), &text), kExitAlreadyRunning);
  EXPECT_THAT(text, HasSubstr("another instance is running"));
  // Also with another gRPC socket and the same session socket.
  EXPECT_EQ(Run(Daemon({"--socket=" + directory_ / "run/gemmd/other.sock"}), &text),
            kExitAlreadyRunning);
  SessionSocketClient client(directory_ / "run/gemmd/session.sock");
  EXPECT_EQ(client.Open().size(), 16u);
  kill(first.pid, SIGINT);
  EXPECT_EQ(Wait(first), 0);
}

TEST_F(ProcessTest, AStaleSocketOfAKilledDaemonIsReplaced) {
  const Process killed = Spawn(Daemon());
  ASSERT_TRUE(WaitFor(killed, "listening on"));
  kill(killed.pid, SIGKILL);
  EXPECT_EQ(Wait(killed), -SIGKILL);
  EXPECT_TRUE(std::filesystem::exists(socket()));
  const Process next = Spawn(Daemon());
  ASSERT_TRUE(WaitFor(next, "listening on"));
  kill(next.pid, SIGTERM);
  EXPECT_EQ(Wait(next), 0);
}

TEST_F(ProcessTest, ALiveSocketOfAnotherProgramIsLeftAlone) {
  std::filesystem::create_directories(directory_ / "run/gemmd");
  const UniqueFd other(::socket(AF_UNIX, SOCK_STREAM, 0));
  const sockaddr_un address = UnixAddress(socket());
  ASSERT_EQ(bind(other.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(other.get(), 5), 0);
  std::string text;
  EXPECT_EQ(Run(Daemon(), &text), kExitAlreadyRunning);
  EXPECT_TRUE(std::filesystem::exists(socket()));
}

TEST_F(ProcessTest, WhatIsInTheWayOfTheSocketIsNamed) {
  std::string text;
  std::filesystem::create_directories(socket());
  EXPECT_EQ(Run(Daemon(), &text), kExitCannotCreate);
  EXPECT_THAT(text, HasSubstr("the path is a directory"));
  std::filesystem::remove(socket());
  std::ofstream(socket()) << "data";
  EXPECT_EQ(Run(Daemon(), &text), kExitCannotCreate);
  EXPECT_TRUE(std::filesystem::exists(socket())) << "a file of somebody else was removed";
}

TEST_F(ProcessTest, WithoutAGpuDeviceCudaIsNoDevice) {
  if (access("/dev/nvidia0", F_OK) == 0) GTEST_SKIP() << "this machine has a GPU";
  std::string text;
  EXPECT_EQ(Run({"--device=cuda", "--metrics_address="}, &text), kExitNoDevice);
  EXPECT_THAT(text, HasSubstr("no usable GPU"));
  EXPECT_FALSE(std::filesystem::exists(socket()));
}

TEST_F(ProcessTest, ASecondSignalEndsADrainAtOnce) {
  const Process daemon = Spawn(Daemon({"--drain_deadline=60s"}));
  ASSERT_TRUE(WaitFor(daemon, "listening on"));
  kill(daemon.pid, SIGTERM);
  kill(daemon.pid, SIGINT);
  const int code = Wait(daemon, absl::Seconds(5));
  // Nothing is in flight, so the drain may win.
  EXPECT_THAT(code, ::testing::AnyOf(0, 128 + SIGINT, 128 + SIGTERM));
  EXPECT_FALSE(std::filesystem::exists(socket()));
}

// systemd gives a path, or, in some containers, a name in the abstract namespace ("@name").
class NotifyTest : public ProcessTest, public ::testing::WithParamInterface<bool> {};

TEST_P(NotifyTest, TellsSystemdAboutReadinessAndStopping) {
  const bool is_abstract = GetParam();
  const std::string path = (is_abstract ? "@" : "") + std::string(directory_ / "notify");
  const UniqueFd notify(::socket(AF_UNIX, SOCK_DGRAM, 0));
  sockaddr_un address = UnixAddress(path);
  if (is_abstract) address.sun_path[0] = '\0';
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  ASSERT_EQ(bind(notify.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
  const timeval patience = {10, 0};
  setsockopt(notify.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const auto next = [&notify] {
    char data[256];
    const ssize_t size = recv(notify.get(), data, sizeof data, 0);
    return std::string(data, size < 0 ? 0 : static_cast<size_t>(size));
  };
  const Process daemon = Spawn(Daemon(), {"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=400000"});
  EXPECT_THAT(next(), HasSubstr("READY=1"));
  EXPECT_EQ(next(), "WATCHDOG=1");
  EXPECT_EQ(next(), "WATCHDOG=1");
  kill(daemon.pid, SIGTERM);
  std::string message;
  for (int i = 0; i < 10 && message.find("STOPPING=1") == std::string::npos; ++i) message = next();
  EXPECT_THAT(message, HasSubstr("STOPPING=1"));
  EXPECT_EQ(Wait(daemon), 0);
}

INSTANTIATE_TEST_SUITE_P(Sockets, NotifyTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Abstract" : "Path"; });

// The unit of deploy/systemd with every path moved into the test's folder.
class UnitTest : public ProcessTest {
 protected:
  // The value of the setting that stands on a line of its own.
  static std::string Setting(const std::string& name) {
    std::ifstream unit(kDeploy + "/systemd/gemmd.service");
    const std::string key = name + "=";
    for (std::string line; std::getline(unit, line);) {
      if (absl::StartsWith(line, key)) return line.substr(key.size());
    }
    ADD_FAILURE() << "the unit has no " << name;
    return "";
  }
  std::vector<std::string> Arguments() {
    std::vector<std::string> words = absl::StrSplit(Setting("ExecStart"), ' ');
    EXPECT_EQ(words.front(), "/usr/bin/gemmd");
    words.erase(words.begin());
    for (std::string& word : words) {
      word = absl::StrReplaceAll(word, {{"/etc/gemmd", kDeploy},
                                        {"/run/gemmd", directory_ / "run"},
                                        {"/var/cache/gemmd", directory_ / "cache"}});
    }
    return words;
  }
};

TEST_F(UnitTest, ItsCommandLineIsOneThatTheDaemonTakes) {
  std::vector<std::string> arguments = Arguments();
  arguments.push_back("--check_config");
  std::string text;
  EXPECT_EQ(Run(arguments, &text), 0) << text;
  EXPECT_THAT(text, HasSubstr("drain_deadline: 30s  # default\n"));
}

TEST_F(UnitTest, SystemdWaitsForTheDrainAndDoesNotRestartWhatARestartCannotCure) {
  // drain_deadline, and the 3 seconds after which the daemon ends in any case.
  EXPECT_EQ(Setting("TimeoutStopSec"), "45s");
  EXPECT_GT(absl::Seconds(45), Config().drain_deadline + absl::Seconds(3));
  std::set<std::string> codes;
  for (const int code : {kExitUsage, kExitBadFlag, kExitNotPermitted, kExitBadConfig}) {
    codes.insert(std::to_string(code));
  }
  EXPECT_EQ(std::set<std::string>(absl::StrSplit(Setting("RestartPreventExitStatus"), ' ')), codes);
}

TEST_F(ProcessTest, AnOperatorDrainsIt) {
  const Process daemon = Spawn(Daemon());
  ASSERT_TRUE(WaitFor(daemon, "listening on"));
  SessionSocketClient client(directory_ / "run/gemmd/session.sock");
  const std::string token = client.Open();
  const auto admin = v1::AdminService::NewStub(
      grpc::CreateChannel("unix:" + socket(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.AddMetadata("gemmd-session-bin", token);
  v1::DrainRequest request;
  v1::DrainResponse response;
  request.set_deadline_seconds(5);
  const grpc::Status status = admin->Drain(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(Wait(daemon), 0);
}

}  // namespace
}  // namespace gemmd
