#include "server/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "kernels/base/status.h"
#include "server/exit_codes.h"
#include "tests/server/fixture.h"

namespace gemmd {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class ConfigTest : public ::testing::Test {
 protected:
  std::string File(const std::string& text) {
    const std::string path = directory_ / "gemmd.yaml";
    std::ofstream(path) << text;
    return path;
  }
  absl::StatusOr<LoadedConfig> Load(const std::string& text, FlagValues flags = {}) {
    flags["config"] = File(text);
    return LoadConfig(flags, environment_);
  }
  static std::string OriginOf(const LoadedConfig& loaded, const std::string& name) {
    for (const ConfigEntry& entry : loaded.entries) {
      if (entry.name == name) return entry.origin;
    }
    return "";
  }

  TempDir directory_;
  std::map<std::string, std::string> variables_ = {{"XDG_RUNTIME_DIR", "/run/user/7"},
                                                   {"HOME", "/home/u"}};
  Environment environment_ = {[this](const std::string& name) -> std::optional<std::string> {
                                const auto found = variables_.find(name);
                                if (found == variables_.end()) return std::nullopt;
                                return found->second;
                              },
                              7};
};

TEST_F(ConfigTest, AnEmptyFileGivesDefaults) {
  const auto loaded = Load("# nothing\n");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.socket, "/run/user/7/gemmd/gemmd.sock");
  EXPECT_EQ(loaded->config.session_socket, "/run/user/7/gemmd/session.sock");
  EXPECT_EQ(loaded->config.cache_dir, "/home/u/.cache/gemmd");
  EXPECT_EQ(loaded->config.metrics_address, "127.0.0.1:9464");
  EXPECT_EQ(loaded->entries.size(), SettingNames().size());
  for (const ConfigEntry& entry : loaded->entries) EXPECT_EQ(entry.origin, "default") << entry.name;
}

TEST_F(ConfigTest, ReadsEverySetting) {
  const auto loaded = Load(
      "socket: /a/g.sock\nsession_socket: /b/s.sock\ndevice: cpu\ncheckpoint_roots: [/m, /n/]\n"
      "gptq_zero_points: field-masked\ncache_dir: /c\ncache_max_bytes: 5000000000\nmetrics_address: ''\nlog_format: "
      "text\nlog_level: debug\ndrain_deadline: "
      "1m30s\n"
      "cpu_threads: 3\ncompile_workers: 6\nadmin_uids: [7, 1000]\nmax_sessions: 5\nmax_regions_per_session: 6\n"
      "max_region_bytes_per_session: 1099511627776\nmax_layers_per_session: 8\n"
      "max_queued_per_session: 9\nloader_threads: 10\nstream_grace: 1s\n");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  const Config& config = loaded->config;
  EXPECT_EQ(config.socket, "/a/g.sock");
  EXPECT_EQ(config.session_socket, "/b/s.sock");
  EXPECT_EQ(config.device, DeviceChoice::kCpu);
  EXPECT_THAT(config.node.checkpoint_roots, ::testing::ElementsAre("/m", "/n/"));
  EXPECT_EQ(config.node.reading.gptq_zero_points, GptqZeroPoints::kFieldMasked);
  EXPECT_EQ(config.cache_max_bytes, 5000000000);
  EXPECT_EQ(config.metrics_address, "");
  EXPECT_EQ(config.drain_deadline, absl::Seconds(90));
  EXPECT_EQ(config.cpu_threads, 3);
  EXPECT_EQ(config.compile_workers, 6);
  EXPECT_THAT(config.admin_uids, ::testing::ElementsAre(7, 1000));
  EXPECT_EQ(config.node.max_sessions, 5);
  EXPECT_EQ(config.node.max_queued_per_session, 9);
  EXPECT_EQ(config.node.stream_grace, absl::Seconds(1));
  for (const ConfigEntry& entry : loaded->entries) EXPECT_EQ(entry.origin, "file") << entry.name;
}

TEST_F(ConfigTest, FlagBeatsEnvironmentBeatsFileBeatsDefault) {
  variables_["GEMMD_CPU_THREADS"] = "2";
  variables_["GEMMD_MAX_SESSIONS"] = "20";
  const auto loaded =
      Load("cpu_threads: 1\nmax_sessions: 10\nloader_threads: 4\n", {{"cpu_threads", "3"}});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->config.cpu_threads, 3);
  EXPECT_EQ(OriginOf(*loaded, "cpu_threads"), "flag");
  EXPECT_EQ(loaded->config.node.max_sessions, 20);
  EXPECT_EQ(OriginOf(*loaded, "max_sessions"), "environment");
  EXPECT_EQ(loaded->config.node.loader_threads, 4);
  EXPECT_EQ(OriginOf(*loaded, "loader_threads"), "file");
  EXPECT_EQ(OriginOf(*loaded, "device"), "default");
}

TEST_F(ConfigTest, AnEmptyFlagDiffersFromNone) {
  const auto loaded = Load("metrics_address: 127.0.0.1:1\n", {{"metrics_address", ""}});
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->config.metrics_address, "");
}

struct BadFile {
  const char* text;
  const char* message;  // part of it, after the path
};

TEST_F(ConfigTest, BadFilesAreRefusedWithTheirLine) {
  const BadFile cases[] = {
      {"device: cpu\nsokcet: /a\n", ":2: unknown key 'sokcet'"},
      {"\n\ncpu_threads: many\n", ":3: cpu_threads: 'many' is not an integer in [0, 1024]"},
      {"cpu_threads: 5000\n", ":1: cpu_threads: '5000' is out of range [0, 1024]"},
      {"cpu_threads: -1\n", ":1: cpu_threads: '-1' is out of range [0, 1024]"},
      {"cpu_threads: 99999999999999999999\n", ":1: cpu_threads: "},
      {"max_sessions: 0\n", ":1: max_sessions: '0' is out of range [1, 65536]"},
      {"device: tpu\n", ":1: device: 'tpu' is none of auto, cpu, cuda"},
      {"socket: gemmd.sock\n", ":1: socket: 'gemmd.sock' is not an absolute path"},
      {"drain_deadline: 30\n", ":1: drain_deadline: '30' is not a duration"},
      {"drain_deadline: 2h\n", ":1: drain_deadline: '2h' is out of range"},
      {"metrics_address: 9464\n", ":1: metrics_address: '9464' is not host:port"},
      {"metrics_address: localhost:99999\n", ":1: metrics_address: '99999' is out of range"},
      {"checkpoint_roots: /models\n", ":1: checkpoint_roots: expected a sequence"},
      {"checkpoint_roots: [models]\n", ":1: checkpoint_roots: 'models' is not an absolute path"},
      {"admin_uids:\n  - 1\n  - root\n", ":1: admin_uids: 'root' is not an integer"},
      {"admin_uids:\n  - 1\n  - [2]\n", ":3: admin_uids: expected a sequence of plain values"},
      {"device: [cpu]\n", ":1: device: expected one value"},
      {"device:\n", ":1: device: expected one value"},
      {"device: cpu\ndevice: cuda\n", ":2: device is given twice"},
      {"- device\n", ":1: expected a mapping of settings"},
      {"device: {\n", ":"},
      {"just text\n", ":1: expected a mapping"},
  };
  for (const BadFile& bad : cases) {
    const auto loaded = Load(bad.text);
    ASSERT_FALSE(loaded.ok()) << bad.text;
    EXPECT_EQ(ExitCodeOf(loaded.status()), kExitBadConfig) << bad.text;
    EXPECT_THAT(std::string(loaded.status().message()),
                ::testing::StartsWith(directory_ / "gemmd.yaml" + bad.message))
        << bad.text;
  }
}

TEST_F(ConfigTest, MissingFilesAndDirectoriesAreRefused) {
  for (const std::string& path : {directory_ / "none.yaml", directory_.path().string()}) {
    const auto loaded = LoadConfig({{"config", path}}, environment_);
    EXPECT_EQ(ExitCodeOf(loaded.status()), kExitBadConfig) << path;
    EXPECT_THAT(std::string(loaded.status().message()),
                HasSubstr("cannot read the configuration file"));
  }
}

TEST_F(ConfigTest, TextThatIsNotPlainUtf8IsRefusedWithItsLine) {
  const std::string bad[] = {
      "\xff\xfe", "\xc0\xaf",           "\xe0\x80\x80", "\xed\xa0\x80", "\xf5\x80\x80\x80",
      "\xe2\x82", std::string(1, '\0'), "\x01",         "\x1b",         "\x7f"};
  for (const std::string& bytes : bad) {
    const auto loaded = Load("device: cpu\n# " + bytes + "\n");
    EXPECT_EQ(ExitCodeOf(loaded.status()), kExitBadConfig) << bytes;
    EXPECT_THAT(std::string(loaded.status().message()), HasSubstr(":2: a control character"));
  }
  EXPECT_TRUE(Load("# \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80\tx\r\ndevice: cpu\r\n").ok());
}

TEST_F(ConfigTest, ControlCharactersInPathsAreRefused) {
  EXPECT_FALSE(Load("socket: \"/a/\\nb\"\n").ok());
  for (const char* name : {"socket", "session_socket", "cache_dir", "checkpoint_roots"}) {
    const auto loaded = LoadConfig({{name, "/a\nb"}}, environment_);
    EXPECT_EQ(ExitCodeOf(loaded.status()), kExitBadFlag) << name;
    EXPECT_THAT(std::string(loaded.status().message()),
                HasSubstr("'/a?b' has a control character"));
  }
}

TEST_F(ConfigTest, ASecondDocumentIsRefused) {
  const auto loaded = Load("device: cpu\n---\ndevice: auto\n");
  EXPECT_EQ(ExitCodeOf(loaded.status()), kExitBadConfig);
  EXPECT_THAT(std::string(loaded.status().message()), HasSubstr("a second YAML document"));
  EXPECT_TRUE(Load("---\ndevice: cpu\n").ok());
}

TEST_F(ConfigTest, FilesThatAreNotRegularAreRefusedAtOnce) {
  const std::string fifo = directory_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (const std::string& path : {fifo, std::string("/dev/zero"), std::string("/dev/null")}) {
    const auto loaded = LoadConfig({{"config", path}}, environment_);
    EXPECT_EQ(ExitCodeOf(loaded.status()), kExitBadConfig) << path;
    EXPECT_THAT(std::string(loaded.status().message()), HasSubstr("not a regular file"));
  }
}

TEST_F(ConfigTest, LongKeysAndValuesAreShortenedInMessages) {
  const std::string text(500, 'k');  // YAML ends a plain key at 1024 characters
  for (const auto& loaded : {Load(text + ": 1\n"), Load("device: " + text + "\n"),
                             Load("cpu_threads: " + text + "\n"), Load("socket: " + text + "\n")}) {
    ASSERT_FALSE(loaded.ok());
    EXPECT_THAT(std::string(loaded.status().message()),
                HasSubstr("'" + text.substr(0, 64) + "...'"));
    EXPECT_LT(loaded.status().message().size(), 1200u);
  }
}

TEST_F(ConfigTest, UnknownVariablesAreNamedWithTheNearestSetting) {
  environment_.names = {"GEMMD_SOCKT", "GEMMD_DEVICE", "GEMMD_CONFIG", "HOME", "GEMMD_"};
  const auto loaded = LoadConfig({}, environment_);
  ASSERT_TRUE(loaded.ok());
  ASSERT_EQ(loaded->warnings.size(), 2u);
  EXPECT_THAT(loaded->warnings[0], HasSubstr("GEMMD_SOCKT"));
  EXPECT_THAT(loaded->warnings[0], EndsWith("the nearest is GEMMD_SOCKET"));
}

TEST_F(ConfigTest, BadFlagsAndVariablesSayWhichTheyAre) {
  const auto flag = LoadConfig({{"log_level", "loud"}}, environment_);
  EXPECT_EQ(ExitCodeOf(flag.status()), kExitBadFlag);
  EXPECT_THAT(std::string(flag.status().message()), HasSubstr("flag --log_level"));
  variables_["GEMMD_LOG_LEVEL"] = "loud";
  const auto variable = LoadConfig({}, environment_);
  EXPECT_EQ(ExitCodeOf(variable.status()), kExitBadConfig);
  EXPECT_THAT(std::string(variable.status().message()), HasSubstr("GEMMD_LOG_LEVEL"));
}

TEST_F(ConfigTest, PathsFollowTheUserAndNeverTmp) {
  environment_.uid = 0;
  variables_.clear();
  auto loaded = LoadConfig({}, environment_);
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->config.socket, "/run/gemmd/gemmd.sock");
  EXPECT_EQ(loaded->config.cache_dir, "/var/cache/gemmd");
  environment_.uid = 7;
  loaded = LoadConfig({}, environment_);
  EXPECT_EQ(ExitCodeOf(loaded.status()), kExitBadConfig);
  EXPECT_THAT(std::string(loaded.status().message()), HasSubstr("XDG_RUNTIME_DIR"));
}

TEST_F(ConfigTest, ACacheWithoutAPlaceIsNoErrorAndSaysWhy) {
  for (const char* home : {"", "relative/path"}) {
    variables_["HOME"] = home;
    const auto loaded = LoadConfig({}, environment_);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(loaded->config.cache_dir, "");
    EXPECT_EQ(OriginOf(*loaded, "cache_dir"), "default");
    EXPECT_THAT(loaded->config.no_cache_dir, HasSubstr("HOME is not an absolute path"));
  }
  const auto set = LoadConfig({{"cache_dir", "/c"}}, environment_);
  ASSERT_TRUE(set.ok()) << set.status();
  EXPECT_EQ(set->config.no_cache_dir, "");
}

TEST_F(ConfigTest, SocketPathsThatDoNotFitAreRefused) {
  const auto loaded = LoadConfig({{"socket", "/" + std::string(107, 's')}}, environment_);
  EXPECT_THAT(std::string(loaded.status().message()),
              HasSubstr("has 108 bytes; a Unix socket takes 107"));
  EXPECT_FALSE(LoadConfig({{"socket", "/a/s"}, {"session_socket", "/a/s"}}, environment_).ok());
}

TEST(ExampleConfigTest, TheDeployedExampleIsValid) {
  const std::string path = std::string(GEMMD_TEST_DATA) + "/../../deploy/gemmd.yaml";
  const auto loaded =
      LoadConfig({{"config", path}}, {[](const std::string&) { return std::nullopt; }, 0});
  EXPECT_TRUE(loaded.ok()) << loaded.status();
}

}  // namespace
}  // namespace gemmd
