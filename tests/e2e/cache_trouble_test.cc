// What operators see of a kernel cache in trouble: entries that are damaged, cannot be read or cannot be removed, a
// directory that is not used or too small. Real daemons and gemmctl; the compiler is a fake and takes no time.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/environment.h"

namespace gemmd::e2e {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int kCannotCreate = 73;
constexpr int kNotPermitted = 77;

class CacheTroubleTest : public DaemonTest {
 protected:
  void SetUp() override {
    if (!fs::exists(GEMMD_FAKE_NVRTC)) GTEST_SKIP() << "the fake compiler is not on this machine";
    daemon_device_ = "cpu";
    cache_ = directory_ + "/cache";
    daemon_environment_ = {"GEMMD_NVRTC=" GEMMD_FAKE_NVRTC, "FAKE_NVRTC_VERSION=13.0",
                           "FAKE_NVRTC_DIR=" + directory_};
    ASSERT_EQ(chmod(directory_.c_str(), 0777), 0);
  }
  void TearDown() override {  // so that its files can be removed
    for (const std::string& path : {directory_ + "/cache", directory_ + "/closed"}) chmod(path.c_str(), 0700);
  }
  // Daemons from now on are of a user whom permissions bind.
  void BecomeOrdinary() {
    if (geteuid() != 0) return;
    daemon_prefix_ = {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
  }

  struct Result {
    int code;
    std::string out;  // with what it wrote to stderr
  };
  std::unique_ptr<Process> Launch(std::vector<std::string> words) {
    words.insert(words.begin(), {"/bin/sh", "-c", "exec \"$@\" 2>&1", "sh", Program("gemmctl"), "--socket", socket()});
    return Start(words);
  }
  Result Gemmctl(const std::vector<std::string>& words) {
    auto tool = Launch(words);
    const int code = tool->Wait(absl::Minutes(1));
    return {code, tool->Rest()};
  }
  Result Prewarm(const std::string& architecture = "sm_80", std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"prewarm", Checkpoints() + "/awq_gemm_g128", "--arch", architecture});
    return Gemmctl(more);
  }
  std::vector<fs::path> Entries() const {
    std::vector<fs::path> entries;
    for (const auto& file : fs::directory_iterator(cache_)) {
      if (file.path().extension() == ".kernel") entries.push_back(file.path());
    }
    std::sort(entries.begin(), entries.end());
    return entries;
  }
  void StartAndFill() {
    StartDaemon();
    ASSERT_EQ(Prewarm().code, 0);
    ASSERT_GT(Entries().size(), 2u);
  }
  // Nobody but root may change what is in the directory.
  void Freeze() {
    for (const fs::path& entry : Entries()) ASSERT_EQ(chmod(entry.c_str(), 0444), 0);
    ASSERT_EQ(chmod(cache_.c_str(), 0555), 0);
    BecomeOrdinary();
  }
  // Another user may be next.
  void RemoveLocks() {
    for (const auto& file : fs::directory_iterator(directory_)) {
      if (file.path().extension() == ".lock") fs::remove(file.path());
    }
  }
  void Restart() {
    StopDaemon(absl::Seconds(20));
    RemoveLocks();
    StartDaemon();
  }
  double Metric(const std::string& name) {
    const auto metrics = client::Admin::Open(socket())->Metrics();
    EXPECT_TRUE(metrics.ok()) << metrics.status();
    const std::string text = metrics.ok() ? metrics->text() : "";
    const size_t at = text.find(absl::StrCat("\n", name, " "));
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  }
  // Processes that the daemon has started and that live.
  std::set<pid_t> Helpers() const {
    std::set<pid_t> pids;
    std::error_code error;
    for (const auto& task :
         fs::directory_iterator(absl::StrCat("/proc/", daemon_->pid(), "/task"), error)) {
      std::ifstream file(task.path() / "children");
      for (pid_t pid; file >> pid;) pids.insert(pid);
    }
    return pids;
  }
  // One that nobody has reaped yet is not.
  static bool IsAlive(pid_t pid) {
    std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
    std::string number, name;
    char state = 'Z';
    file >> number >> name >> state;
    return state != 'Z' && state != 'X';
  }
  // Whether one line of the log has all of `parts`.
  bool LogHas(const std::vector<std::string>& parts) const {
    std::ifstream file(log());
    for (std::string line; std::getline(file, line);) {
      if (std::all_of(parts.begin(), parts.end(), [&line](const std::string& part) {
            return line.find(part) != std::string::npos;
          })) {
        return true;
      }
    }
    return false;
  }
  // What the message of a remembered failure says to purge.
  static std::string KeyToPurge(const std::string& text) {
    const size_t at = text.find("--key ");
    return at == std::string::npos ? "" : text.substr(at + 6, 12);
  }
  std::string Log() const {
    std::ifstream file(log());
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(CacheTroubleTest, PurgeAndVerifySayWhatCouldNotBeRemovedAndWhy) {
  StartAndFill();
  const std::vector<fs::path> entries = Entries();
  fs::resize_file(entries[0], 100);
  Freeze();
  Restart();
  const Result verified = Gemmctl({"cache", "verify"});
  EXPECT_EQ(verified.code, 1);
  const std::string counts = absl::StrCat(entries.size(), " checked, 0 dropped, 1 damaged but not removed");
  EXPECT_THAT(verified.out, AllOf(HasSubstr(counts),
                                  HasSubstr(entries[0].stem().string()), HasSubstr("Permission denied")));
  EXPECT_EQ(Metric("gemmd_cache_integrity_failures_total{kind=\"damaged\"}"), 0)
      << "nothing was dropped";
  const Result purged = Gemmctl({"cache", "purge", "--all"});
  EXPECT_EQ(purged.code, 1);
  EXPECT_THAT(purged.out, AllOf(HasSubstr("0 kernels removed"), HasSubstr("Permission denied"),
                                HasSubstr(absl::StrCat(entries.size(), " kernels could not be removed"))));
  EXPECT_EQ(Entries().size(), entries.size());
  EXPECT_THAT(Log(), HasSubstr("entries could not be removed"));
}

TEST_F(CacheTroubleTest, EntriesThatCannotBeReadAreCountedAndNamed) {
  BecomeOrdinary();
  StartAndFill();
  const std::vector<fs::path> entries = Entries();
  ASSERT_EQ(chmod(entries[1].c_str(), 0), 0);
  const Result verified = Gemmctl({"cache", "verify"});
  EXPECT_EQ(verified.code, 1);
  EXPECT_THAT(verified.out, AllOf(HasSubstr(absl::StrCat(entries.size(), " checked, 0 dropped, 1 unreadable")),
                                  HasSubstr("unreadable " + entries[1].stem().string()),
                                  HasSubstr("Permission denied")));
  EXPECT_THAT(Gemmctl({"cache", "list"}).out, HasSubstr("Permission denied"));
  EXPECT_EQ(Entries().size(), entries.size()) << "it may be good: it stays";
}

TEST_F(CacheTroubleTest, WhatVerifyDropsIsCountedAndExportLeavesDamageOut) {
  StartAndFill();
  const std::vector<fs::path> entries = Entries();
  const std::string bundle = directory_ + "/bundle";
  {  // behind what a list reads
    std::fstream file(entries[0], std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(-1, std::ios::end);
    file.put('\0');
  }
  const Result exported = Gemmctl({"cache", "export", bundle});
  EXPECT_EQ(exported.code, 1);
  EXPECT_THAT(exported.out, AllOf(HasSubstr(absl::StrCat(entries.size() - 1, " kernels, ")),
                                  HasSubstr("not exported " + entries[0].stem().string()), HasSubstr("digest"),
                                  HasSubstr("1 kernels are damaged or unreadable")));
  const Result all_damaged = Gemmctl({"cache", "export", directory_ + "/none", "--key", entries[0].stem()});
  EXPECT_EQ(all_damaged.code, 1);
  EXPECT_THAT(all_damaged.out, HasSubstr("NOTHING_SELECTED"));
  EXPECT_FALSE(fs::exists(directory_ + "/none"));

  EXPECT_EQ(Metric("gemmd_cache_integrity_failures_total{kind=\"damaged\"}"), 0);
  EXPECT_THAT(Gemmctl({"cache", "verify"}).out, HasSubstr("1 dropped"));
  EXPECT_EQ(Metric("gemmd_cache_integrity_failures_total{kind=\"damaged\"}"), 1);
  EXPECT_EQ(Metric("gemmd_cache_integrity_failures_total{kind=\"stale\"}"), 0);
  EXPECT_EQ(Metric("gemmd_cache_integrity_failures_total{kind=\"foreign\"}"), 0);
  EXPECT_EQ(Gemmctl({"cache", "purge", "--all"}).code, 0);
  EXPECT_EQ(Gemmctl({"cache", "import", bundle}).code, 0);
  EXPECT_EQ(Entries().size(), entries.size() - 1);
}

TEST_F(CacheTroubleTest, ADroppedEntryIsAWarningAndThePrewarmSaysWhatItDid) {
  StartAndFill();
  const std::vector<fs::path> entries = Entries();
  EXPECT_TRUE(LogHas({"prewarm ended", "status=OK", absl::StrCat("compiled=", entries.size()),
                      "cached=0", "failed=0"}))
      << Log();
  fs::resize_file(entries[0], 100);
  EXPECT_EQ(Prewarm().code, 0);
  EXPECT_TRUE(LogHas(
      {"warn", "unusable entry dropped", "key=" + entries[0].stem().string(), "kind=damaged"}))
      << Log();
  EXPECT_TRUE(LogHas(
      {"prewarm ended", "status=OK", "compiled=1", absl::StrCat("cached=", entries.size() - 1)}))
      << Log();
  EXPECT_EQ(Metric("gemmd_cache_integrity_failures_total{kind=\"damaged\"}"), 1);
}

TEST_F(CacheTroubleTest, ACompilerThatIsKilledIsAWarningAndThePrewarmCountsItsKernel) {
  daemon_environment_.push_back("GEMMD_COMPILE_WORKERS=1");
  StartDaemon();
  std::ofstream(directory_ + "/hold") << "#include";  // whatever is compiled waits
  auto prewarm = Launch({"prewarm", Checkpoints() + "/awq_gemm_g128", "--arch", "sm_80"});
  ASSERT_TRUE(Within(absl::Seconds(20), [&] { return Metric("gemmd_compile_queue_depth") > 0; }));
  for (const pid_t pid : Helpers()) kill(pid, SIGKILL);
  fs::remove(directory_ + "/hold");
  EXPECT_EQ(prewarm->Wait(absl::Seconds(60)), 1);
  EXPECT_TRUE(LogHas({"warn", "a compile helper died", "key=", "kernel=", "signal 9"})) << Log();
  EXPECT_TRUE(
      LogHas({"warn", "prewarm ended", "status=OK", "failed=1", "first_problem=", "signal 9"}))
      << Log();
  EXPECT_EQ(Metric("gemmd_compile_helper_deaths_total"), 1);
  EXPECT_EQ(Metric("gemmd_compile_total{result=\"failed\"}"), 1);
  const Result again = Prewarm();
  EXPECT_EQ(again.code, 1);
  EXPECT_THAT(again.out, AllOf(HasSubstr("remembered until 20"), HasSubstr("signal 9"), HasSubstr("1 failed")));
  EXPECT_EQ(Gemmctl({"cache", "purge", "--key", KeyToPurge(again.out)}).code, 0);
  EXPECT_EQ(Prewarm().code, 0);
}

TEST_F(CacheTroubleTest, WhatAnotherDaemonCompiledIsNoFailureHere) {
  StartDaemon();
  std::ofstream(directory_ + "/reject") << "#include";  // whatever is compiled
  EXPECT_EQ(Prewarm().code, 1);
  fs::remove(directory_ + "/reject");
  EXPECT_THAT(Prewarm().out, HasSubstr("remembered while the daemon runs"));
  const std::string other = directory_ + "/other.sock";
  auto second = Start({Program("gemmd"), "--device=cpu", "--socket=" + other, "--session_socket=" + other + ".s",
                       "--cache_dir=" + cache_, "--metrics_address=", "--checkpoint_roots=" + Checkpoints()},
                      daemon_environment_);
  ASSERT_TRUE(Within(absl::Seconds(20), [&] { return client::Admin::Open(other)->Status().ok(); }));
  auto tool = Start({Program("gemmctl"), "--socket", other, "prewarm", Checkpoints() + "/awq_gemm_g128", "--arch",
                     "sm_80"});
  EXPECT_EQ(tool->Wait(absl::Minutes(1)), 0);
  const Result found = Prewarm();
  EXPECT_EQ(found.code, 0) << found.out;
  EXPECT_THAT(found.out, HasSubstr(absl::StrCat(Entries().size(), " cached")));
}

TEST_F(CacheTroubleTest, ACompilerThatIsThereIsToldAtTheStart) {
  StartDaemon();
  EXPECT_TRUE(Within(absl::Seconds(20), [&] {
    return LogHas({"info", "compiler found", "13.0 ", GEMMD_FAKE_NVRTC});
  }));
  EXPECT_THAT(Gemmctl({"doctor"}).out, HasSubstr("ok   compiler: NVRTC 13.0 "));
  EXPECT_THAT(Gemmctl({"status"}).out, HasSubstr(GEMMD_FAKE_NVRTC));
}

TEST_F(CacheTroubleTest, ACompilerThatIsNoneIsToldAtTheStart) {
  daemon_environment_[0] = "GEMMD_NVRTC=/etc/passwd";
  StartDaemon();
  EXPECT_TRUE(Within(absl::Seconds(20), [&] {
    return LogHas({"warn", "no compiler", "/etc/passwd"});
  }));
  EXPECT_THAT(Gemmctl({"doctor"}).out,
              AllOf(HasSubstr("warn compiler: no NVRTC library"), HasSubstr("/etc/passwd")));
  EXPECT_THAT(Gemmctl({"status"}).out, HasSubstr("none: no NVRTC library"));
  EXPECT_EQ(StopDaemon(absl::Seconds(20)), 0);
}

TEST_F(CacheTroubleTest, ADaemonThatStopsDoesNotWaitForASearchForTheCompiler) {
  daemon_environment_.push_back("FAKE_NVRTC_SLOW=30");
  StartDaemon();
  const absl::Time start = absl::Now();
  EXPECT_THAT(Gemmctl({"doctor"}).out, HasSubstr("the daemon still looks for one"));
  EXPECT_EQ(StopDaemon(absl::Seconds(20)), 0);
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
}

TEST_F(CacheTroubleTest, ACompilerThatHangsWhileItIsLoadedEndsWithADaemonThatIsKilled) {
  daemon_environment_.push_back("FAKE_NVRTC_NEVER_LOADS=1");
  StartDaemon();
  ASSERT_TRUE(Within(absl::Seconds(20), [&] { return !Helpers().empty(); }));
  const std::set<pid_t> helpers = Helpers();
  KillDaemon();
  EXPECT_TRUE(Within(absl::Seconds(10), [&] { return std::none_of(helpers.begin(), helpers.end(), &IsAlive); }));
}

TEST_F(CacheTroubleTest, ACompilerAtWorkEndsWithADaemonThatIsKilled) {
  StartDaemon();
  std::ofstream(directory_ + "/hold") << "#include";
  auto prewarm = Launch({"prewarm", Checkpoints() + "/awq_gemm_g128", "--arch", "sm_80"});
  ASSERT_TRUE(Within(absl::Seconds(20), [&] { return Metric("gemmd_compile_queue_depth") > 0; }));
  const std::set<pid_t> helpers = Helpers();
  KillDaemon();
  EXPECT_TRUE(Within(absl::Seconds(10), [&] { return std::none_of(helpers.begin(), helpers.end(), &IsAlive); }));
  EXPECT_NE(prewarm->Wait(absl::Seconds(20)), 0);
}

TEST_F(CacheTroubleTest, ALimitThatIsTooSmallForWhatComesIsToldWithNumbers) {
  StartAndFill();
  const std::string bundle = directory_ + "/bundle";
  ASSERT_EQ(Gemmctl({"cache", "export", bundle}).code, 0);
  ASSERT_EQ(Gemmctl({"cache", "purge", "--all"}).code, 0);
  daemon_environment_.push_back("GEMMD_CACHE_MAX_BYTES=2048");
  Restart();
  const Result imported = Gemmctl({"cache", "import", bundle});
  EXPECT_EQ(imported.code, 0);
  EXPECT_THAT(imported.out,
              AllOf(HasSubstr("of the imported kernels did not stay"), HasSubstr("cache_max_bytes is 2.0 KiB")));
  EXPECT_GT(Metric("gemmd_cache_evicted_total"), 0);
  const Result warmed = Prewarm();
  EXPECT_THAT(warmed.out, HasSubstr("of the prewarmed kernels did not stay"));
  const Result json = Prewarm("sm_80", {"-o", "json"});
  EXPECT_THAT(json.out, HasSubstr("\"limit_bytes\": 2048"));
  EXPECT_THAT(Log(), HasSubstr("cache_max_bytes is too small for them"));
}

TEST_F(CacheTroubleTest, APurgeTakesSeveralArchitectures) {
  StartAndFill();
  const size_t kernels = Entries().size();
  ASSERT_EQ(Prewarm("sm_86,sm_89").code, 0);
  ASSERT_EQ(Entries().size(), 3 * kernels);
  EXPECT_THAT(Gemmctl({"cache", "purge", "--arch", "sm_80,sm_89"}).out,
              HasSubstr(absl::StrCat(2 * kernels, " kernels removed")));
  EXPECT_THAT(Gemmctl({"cache", "list", "--arch", "sm_86,sm_80"}).out, HasSubstr(absl::StrCat(kernels, " kernels, ")));
}

TEST_F(CacheTroubleTest, ADirectoryThatIsALinkToNothingIsSaid) {
  const std::string gone = directory_ + "/gone";
  cache_ = directory_ + "/link";
  fs::create_directory_symlink(gone, cache_);
  const std::string fault = "cannot create directory " + cache_ + ", a symbolic link to " + gone + ": No such file";
  for (const char* below : {"", "/cache"}) {
    cache_ = directory_ + "/link" + below;
    LaunchDaemon();
    EXPECT_EQ(daemon_->Wait(absl::Seconds(20)), kCannotCreate) << below;
    EXPECT_THAT(Log(), HasSubstr(fault)) << below;
  }
  fs::create_directory(gone);
  StartDaemon();
  EXPECT_EQ(Gemmctl({"cache", "list"}).code, 0);
}

TEST_F(CacheTroubleTest, APurgeDuringAPrewarmIsToldAsOne) {
  StartAndFill();
  const size_t kernels = Entries().size();
  fs::remove(Entries()[0]);
  std::ofstream(directory_ + "/hold") << "#include";  // the one that is compiled waits
  const std::string json = directory_ + "/prewarm.json";
  auto prewarm = Start({"/bin/sh", "-c", "exec \"$@\" >" + json + " 2>" + json + ".err", "sh", Program("gemmctl"),
                        "--socket", socket(), "prewarm", Checkpoints() + "/awq_gemm_g128", "--arch", "sm_80", "-o",
                        "json"});
  const auto read = [](const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  ASSERT_TRUE(Within(absl::Seconds(20), [&] {
    return read(json + ".err").find(absl::StrCat("[", kernels - 1, "/", kernels, "]")) != std::string::npos;
  }));
  EXPECT_EQ(Gemmctl({"cache", "purge", "--all"}).code, 0);
  fs::remove(directory_ + "/hold");
  EXPECT_EQ(prewarm->Wait(absl::Minutes(1)), 0);
  const std::string warning = absl::StrCat("warning: ", kernels - 1, " of the prewarmed kernels are gone again: they were purged");
  EXPECT_THAT(read(json + ".err"), AllOf(HasSubstr(warning), Not(HasSubstr("cache_max_bytes"))));
  const auto overflow = nlohmann::json::parse(read(json))["overflow"];
  EXPECT_EQ(overflow["removed"], kernels - 1) << overflow;
  EXPECT_TRUE(LogHas({"warn", "kernels were removed from the cache just after they came"})) << Log();
  EXPECT_THAT(Log(), Not(HasSubstr("too small")));
}

TEST_F(CacheTroubleTest, ADirectoryThatIsGoneIsNoEmptyOne) {
  StartAndFill();
  const std::string away = directory_ + "/away";
  fs::rename(cache_, away);
  for (const char* action : {"list", "verify"}) {
    const Result result = Gemmctl({"cache", action});
    EXPECT_EQ(result.code, 1) << action;
    EXPECT_THAT(result.out, AllOf(HasSubstr("CACHE_READ"), HasSubstr("cannot be listed: No such file"))) << action;
  }
  EXPECT_EQ(Gemmctl({"cache", "purge", "--all"}).code, 1);
  fs::rename(away, cache_);
  EXPECT_EQ(Gemmctl({"cache", "verify"}).code, 0);
}

TEST_F(CacheTroubleTest, WhatLiesInTheWayOfAnEntryOrARecordIsRemovedToo) {
  StartAndFill();
  fs::create_directories(cache_ + "/" + std::string(64, 'e') + ".kernel/folder");
  fs::create_directories(cache_ + "/" + std::string(64, 'f') + ".quarantine/folder");
  const Result purged = Gemmctl({"cache", "purge", "--all"});
  EXPECT_EQ(purged.code, 0) << purged.out;
  EXPECT_THAT(Entries(), testing::IsEmpty());
  EXPECT_FALSE(fs::exists(cache_ + "/" + std::string(64, 'f') + ".quarantine"));
}

TEST_F(CacheTroubleTest, BytesOnDiskCountWhatOthersDo) {
  StartAndFill();
  const auto agrees = [this] {
    uint64_t bytes = 0;
    for (const fs::path& entry : Entries()) bytes += fs::file_size(entry);
    return Metric("gemmd_cache_bytes") == static_cast<double>(bytes);
  };
  EXPECT_TRUE(Within(absl::Seconds(10), agrees));
  fs::copy_file(Entries()[0], cache_ + "/" + std::string(64, 'f') + ".kernel");
  EXPECT_TRUE(Within(absl::Seconds(10), agrees)) << "another process wrote";
  fs::remove(Entries()[0]);
  EXPECT_TRUE(Within(absl::Seconds(10), agrees)) << "another process removed";
  EXPECT_EQ(Gemmctl({"cache", "purge", "--all"}).code, 0);
  EXPECT_EQ(Metric("gemmd_cache_bytes"), 0);
}

TEST_F(CacheTroubleTest, WithoutNvrtcAFilledCacheServesAPrewarm) {
  StartAndFill();
  daemon_environment_[0] = "GEMMD_NVRTC=" + directory_ + "/none.so";
  Restart();
  const Result again = Prewarm();
  EXPECT_EQ(again.code, 0) << again.out;
  EXPECT_THAT(again.out, AllOf(HasSubstr(absl::StrCat(Entries().size(), " cached")), Not(HasSubstr("failed"))));
  fs::remove(Entries()[0]);
  const Result lacking = Prewarm();
  EXPECT_EQ(lacking.code, 1);
  EXPECT_THAT(lacking.out, AllOf(HasSubstr("NVRTC_MISSING"), HasSubstr("1 failed"), HasSubstr("1 of ")));
}

TEST_F(CacheTroubleTest, ProgressGoesToStderrWhateverTheOutput) {
  StartDaemon();
  EXPECT_THAT(Prewarm("sm_80", {"-o", "json"}).out, AllOf(HasSubstr("[1/"), HasSubstr("\"kernels\": [")));
}

TEST_F(CacheTroubleTest, ADirectoryThatWasSetAndCannotBeUsedEndsTheStart) {
  std::ofstream(directory_ + "/file") << "no directory";
  for (const char* path : {"/file", "/file/cache"}) {
    cache_ = directory_ + path;
    LaunchDaemon();
    EXPECT_EQ(daemon_->Wait(absl::Seconds(20)), kCannotCreate) << path;
    EXPECT_THAT(Log(), HasSubstr(absl::StrCat("cannot create directory ", directory_, "/file: Not a directory")));
  }
  ASSERT_TRUE(fs::create_directory(directory_ + "/closed"));
  ASSERT_EQ(chmod((directory_ + "/closed").c_str(), 0), 0);
  BecomeOrdinary();
  RemoveLocks();
  for (const char* path : {"/closed", "/closed/cache"}) {
    cache_ = directory_ + path;
    LaunchDaemon();
    EXPECT_EQ(daemon_->Wait(absl::Seconds(20)), kNotPermitted) << path;
    EXPECT_THAT(Log(), HasSubstr(absl::StrCat(directory_, path, ": Permission denied")));
  }
}

// What doctor and list say of a directory that is not used.
TEST_F(CacheTroubleTest, ADefaultDirectoryThatCannotBeUsedIsToldByDoctorAndList) {
  std::ofstream(directory_ + "/file") << "no directory";
  daemon_environment_.push_back("XDG_CACHE_HOME=" + directory_ + "/file");
  cache_ = "";
  StartDaemon();
  const Result doctor = Gemmctl({"doctor"});
  EXPECT_THAT(doctor.out, AllOf(HasSubstr("warn cache: "),
                                HasSubstr("is not used: Not a directory; kernels live in memory only")));
  EXPECT_THAT(Gemmctl({"status"}).out, HasSubstr("in memory only"));
  const Result listed = Gemmctl({"cache", "list"});
  EXPECT_EQ(listed.code, 1);
  EXPECT_THAT(listed.out, AllOf(HasSubstr("NO_CACHE_DIRECTORY"), HasSubstr("is not used: Not a directory")));
  const Result warmed = Prewarm();
  EXPECT_EQ(warmed.code, 1) << "a prewarm is for the directory";
  EXPECT_THAT(warmed.out, HasSubstr("is not used: Not a directory"));
}

TEST_F(CacheTroubleTest, WithoutHomeAndPathItServesFromMemoryAndSaysWhy) {
  for (const char* variable : {"HOME=", "XDG_CACHE_HOME=", "PATH="}) daemon_environment_.push_back(variable);
  cache_ = "";
  BecomeOrdinary();
  StartDaemon();
  const std::string why = "no default for cache_dir: HOME is not an absolute path";
  EXPECT_THAT(Gemmctl({"doctor"}).out, AllOf(HasSubstr("warn cache: " + why), HasSubstr("kernels live in memory only")));
  EXPECT_THAT(Gemmctl({"status"}).out, AllOf(HasSubstr("in memory only"), HasSubstr("warning: " + why)));
  EXPECT_THAT(Gemmctl({"cache", "list"}).out, AllOf(HasSubstr("NO_CACHE_DIRECTORY"), HasSubstr(why)));
  EXPECT_THAT(Prewarm().out, AllOf(HasSubstr("CACHE_WRITE"), HasSubstr(why)));
  EXPECT_THAT(Log(), HasSubstr(why));
  EXPECT_FALSE(fs::exists("tuning")) << "beside the working directory";
  EXPECT_EQ(StopDaemon(absl::Seconds(20)), 0);
}

TEST_F(CacheTroubleTest, ADirectoryThatIsNotToBeTrustedIsNotUsedAndSoTold) {
  ASSERT_TRUE(fs::create_directory(cache_));
  ASSERT_EQ(chmod(cache_.c_str(), 0777), 0);
  StartDaemon();
  EXPECT_THAT(Gemmctl({"doctor"}).out,
              HasSubstr("is not used: every user may write to it; kernels live in memory only"));
  EXPECT_THAT(Gemmctl({"cache", "list"}).out, HasSubstr("every user may write to it"));
}

TEST_F(CacheTroubleTest, AReadOnlyDirectoryServesAndIsToldByDoctor) {
  StartAndFill();
  Freeze();
  Restart();
  EXPECT_THAT(Gemmctl({"doctor"}).out, HasSubstr("takes no new kernels: Permission denied"));
  EXPECT_EQ(Prewarm().code, 0);
  EXPECT_EQ(Prewarm("sm_90a").code, 1);
}

}  // namespace
}  // namespace gemmd::e2e
