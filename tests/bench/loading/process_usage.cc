#include "tests/bench/loading/process_usage.h"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace gemmd::bench {
namespace {

std::string ProcFile(int pid, const char* name) { return absl::StrCat("/proc/", pid, "/", name); }

absl::Status Gone(int pid) {
  return absl::UnavailableError(absl::StrCat("process ", pid, " cannot be looked at"));
}

// A line "VmHWM:   1234 kB" of /proc/PID/status, in bytes.
uint64_t StatusBytes(const std::string& status, const std::string& field) {
  const size_t at = status.find(field + ":");
  if (at == std::string::npos) return 0;
  return std::stoull(status.substr(at + field.size() + 1)) * 1024;
}

}  // namespace

absl::StatusOr<ProcessUsage> UsageOf(int pid) {
  std::ifstream status_file(ProcFile(pid, "status"));
  const std::string status(std::istreambuf_iterator<char>(status_file), {});
  std::ifstream stat_file(ProcFile(pid, "stat"));
  std::string stat(std::istreambuf_iterator<char>(stat_file), {});
  if (status.empty() || stat.empty()) return Gone(pid);
  // Behind the name in brackets: field 3 is the state, 14 and 15 the times in ticks.
  std::istringstream fields(stat.substr(stat.rfind(')') + 2));
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  double user = 0;
  double system = 0;
  fields >> user >> system;
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  return ProcessUsage{StatusBytes(status, "VmRSS"), StatusBytes(status, "VmHWM"), user / ticks,
                      system / ticks};
}

absl::Status ResetPeak(int pid) {
  std::ofstream file(ProcFile(pid, "clear_refs"));
  file << "5" << std::flush;
  return file ? absl::OkStatus() : Gone(pid);
}

}  // namespace gemmd::bench
