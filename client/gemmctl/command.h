// What    One subcommand of gemmctl: a table entry with its options, its help and its function.
// Exit    0 done; 1 failed, or a check did not hold; 2 usage; 69 nothing listens at the address; 77
//         not allowed. Ctrl-C ends the process by its signal, 130 to a shell.
// Threads One thread.
#ifndef GEMMD_CLIENT_GEMMCTL_COMMAND_H_
#define GEMMD_CLIENT_GEMMCTL_COMMAND_H_

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/admin.h"
#include "client/gemmctl/arguments.h"
#include "client/gemmctl/printable.h"
#include "client/session.h"
#include "kernels/base/bundle_bound.h"
#include "nlohmann/json.hpp"

namespace gemmd::gemmctl {

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;
inline constexpr int kNotRunning = 69;
inline constexpr int kNotAllowed = 77;

struct Context {
  std::string socket;
  bool json = false;  // -o json
  absl::Duration timeout = absl::Seconds(10);  // of a call
  // Of what takes its time: loading a layer, a request of any size. --timeout, where it was given.
  std::optional<absl::Duration> long_timeout = std::nullopt;
  bool progress_bar = false;  // stderr is a terminal
  uint64_t max_bundle_bytes = kMaxBundleBytes;  // that the daemon takes
  std::FILE* out = stdout;
  std::FILE* err = stderr;

  absl::StatusOr<client::Admin> OpenAdmin() const { return client::Admin::Open(socket, timeout); }
  absl::StatusOr<client::Session> OpenSession(const std::string& name) const;
  // Text from the daemon may hold what other clients chose: only printable lines come out.
  void Print(const std::string& text) const { std::fputs(PrintableLines(text).c_str(), out); }
  // On stderr, also beside JSON: what reads the answer does not find it there.
  void Warn(const std::string& text) const { std::fputs(PrintableLines("warning: " + text + "\n").c_str(), err); }
  // ASCII only: other characters are escaped, broken ones replaced.
  void PrintJson(const nlohmann::ordered_json& value) const {
    Print(value.dump(2, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  }
};

struct Command {
  std::string name;
  std::string synopsis;     // after "gemmctl NAME"
  std::string summary;      // one line
  std::string description;  // paragraphs
  std::vector<Option> options;
  std::string examples;  // one a line
  size_t most_positional = 0;
  bool offline = false;  // works on files: no daemon is asked
  absl::StatusOr<int> (*run)(const Context&, const Arguments&);
};

// All subcommands, in the order of --help.
std::vector<Command> Commands();

Command StatusCommand();
Command DevicesCommand();
Command LayersCommand();
Command SessionsCommand();
Command ConfigCommand();
Command MetricsCommand();
Command DrainCommand();
Command RegisterCommand();
Command RunCommand();
Command BenchCommand();
Command ExplainCommand();
Command DoctorCommand();
Command PrewarmCommand();
Command TuneCommand();
Command CacheCommand();
Command InspectCommand();
Command ExportCommand();

// The whole tool. `words` are the arguments without the program's name.
int RunGemmctl(const std::vector<std::string>& words, std::FILE* out, std::FILE* err);

// Exit code for a failed command.
int ExitCode(const absl::Status& status);

}  // namespace gemmd::gemmctl

#endif  // GEMMD_CLIENT_GEMMCTL_COMMAND_H_
