// process_* metrics. Source: proc(5), Prometheus' conventions for client libraries.
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>

#include "server/metrics/family.h"
#include "server/metrics/snapshot.h"

namespace gemmd {
namespace {

// Fields of /proc/self/stat that follow the command in parentheses; index 0 is the state.
std::vector<std::string> StatFields() {
  std::ifstream file("/proc/self/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t end = text.rfind(')');
  std::vector<std::string> fields;
  if (end == std::string::npos) return fields;
  std::istringstream rest(text.substr(end + 1));
  for (std::string field; rest >> field;) fields.push_back(field);
  return fields;
}

std::optional<double> BootTime() {
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("btime ", 0) == 0) return std::stod(line.substr(6));
  }
  return std::nullopt;
}

std::optional<double> OpenDescriptors() {
  std::error_code error;
  double count = 0;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end;
       it.increment(error)) {
    ++count;
  }
  if (error) return std::nullopt;
  return count - 1;  // the directory's own
}

}  // namespace

std::vector<prometheus::MetricFamily> ProcessFamilies() {
  constexpr size_t kUserTime = 11, kSystemTime = 12, kStartTime = 19, kResident = 21;
  std::vector<prometheus::MetricFamily> out;
  const std::vector<std::string> stat = StatFields();
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  if (stat.size() > kResident) {
    out.push_back(Counter("process_cpu_seconds_total", "User and system CPU time.")
                      .Add((std::stod(stat[kUserTime]) + std::stod(stat[kSystemTime])) / ticks)
                      .Build());
    out.push_back(Gauge("process_resident_memory_bytes", "Resident memory.")
                      .Add(std::stod(stat[kResident]) * static_cast<double>(sysconf(_SC_PAGESIZE)))
                      .Build());
    if (const std::optional<double> boot = BootTime(); boot.has_value()) {
      out.push_back(Gauge("process_start_time_seconds", "Start of the process, Unix time.")
                        .Add(*boot + std::stod(stat[kStartTime]) / ticks)
                        .Build());
    }
  }
  if (const std::optional<double> fds = OpenDescriptors(); fds.has_value()) {
    out.push_back(Gauge("process_open_fds", "Open file descriptors.").Add(*fds).Build());
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    out.push_back(Gauge("process_max_fds", "Limit of open file descriptors.")
                      .Add(static_cast<double>(limit.rlim_cur))
                      .Build());
  }
  return out;
}

}  // namespace gemmd
