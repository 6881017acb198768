// What    The daemon's configuration: one typed struct, filled from flags, environment, file and
//         defaults.
// Order   flag > environment (GEMMD_<NAME>) > file > default, value by value; each keeps its
//         origin.
// Errors  InvalidArgument with reason BAD_CONFIG (file, environment) or BAD_FLAG; the message names
//         the place (file:line, variable or flag), the key, the value and what it may be.
//         PermissionDenied / Unavailable when no default path can be chosen.
// Threads Pure functions of their arguments.
#ifndef GEMMD_SERVER_CONFIG_H_
#define GEMMD_SERVER_CONFIG_H_

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/node.h"
#include "kernels/base/bundle_bound.h"
#include "server/logging.h"

namespace gemmd {

enum class DeviceChoice : uint8_t { kAuto, kCpu, kCuda };

struct Config {
  std::string socket;          // gRPC
  std::string session_socket;  // SOCK_SEQPACKET
  DeviceChoice device = DeviceChoice::kAuto;
  std::filesystem::path cache_dir;               // empty: kernels live in memory only
  std::string no_cache_dir;                      // why cache_dir is empty; no setting
  uint64_t cache_max_bytes = uint64_t{4} << 30;  // kernels on disk; 0 = no limit
  // Command line of a process that compiles for the daemon; empty: the daemon compiles itself. No setting:
  // the program's main gives itself.
  std::vector<std::string> compile_helper;
  int compile_workers = 0;                         // compilations at a time; 0 = one per core, at most 32
  uint64_t max_bundle_bytes = kMaxBundleBytes;     // no setting: the contract says it
  std::string metrics_address = "127.0.0.1:9464";  // host:port; empty = no endpoint
  LogFormat log_format = LogFormat::kAuto;
  LogLevel log_level = LogLevel::kInfo;
  absl::Duration drain_deadline = absl::Seconds(30);
  int cpu_threads = 0;  // 0 = all cores of the affinity mask
  std::vector<uid_t> admin_uids;
  NodeOptions node;  // checkpoint_roots and limits
};

struct ConfigEntry {
  std::string name;
  std::string value;
  std::string origin;  // default, file, environment or flag
};

struct LoadedConfig {
  Config config;
  std::vector<ConfigEntry> entries;  // every setting, in the order of the documentation
  std::vector<std::string> warnings;
};

// What a process is started with; tests give their own.
struct Environment {
  std::function<std::optional<std::string>(const std::string&)> get;
  uid_t uid = 0;
  std::vector<std::string> names = {};  // of all variables
};
Environment SystemEnvironment();

// Flags given on the command line, by setting name; "config" names the file.
using FlagValues = std::map<std::string, std::string>;

absl::StatusOr<LoadedConfig> LoadConfig(const FlagValues& flags, const Environment& environment);

// Directories of checkpoint_roots that cannot be used now, each with the reason. A daemon starts without
// them: they may be mounted later.
std::vector<std::pair<std::string, std::string>> UnusableRoots(const Config& config);

// Names that may stand in a configuration file, in the order of the documentation.
std::vector<std::string> SettingNames();

}  // namespace gemmd

#endif  // GEMMD_SERVER_CONFIG_H_
