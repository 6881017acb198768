// What    The daemon's log on stderr: JSON lines for machines, text on a terminal. Asynchronous: a
//         full queue drops its oldest lines and counts them.
// Fields  Every line has ts (RFC 3339, UTC, nanoseconds), level and msg; further fields by name.
//         Tokens, handle bytes and names of other sessions' regions are never logged.
// Threads Everything here is thread-safe after StartLogging.
#ifndef GEMMD_SERVER_LOGGING_H_
#define GEMMD_SERVER_LOGGING_H_

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <variant>

#include "absl/time/time.h"

namespace gemmd {

enum class LogFormat : uint8_t { kAuto, kJson, kText };  // kAuto: text on a terminal
enum class LogLevel : uint8_t { kTrace, kDebug, kInfo, kWarn, kError };
inline constexpr int kLogLevels = 5;

struct LogField {
  const char* name;
  std::variant<int64_t, uint64_t, double, std::string> value;

  LogField(const char* name, std::string value) : name(name), value(std::move(value)) {}
  LogField(const char* name, const char* value) : name(name), value(std::string(value)) {}
  template <typename Number>
  LogField(const char* name, Number value) : name(name), value(Widened(value)) {}

 private:
  template <typename Number>
  static std::variant<int64_t, uint64_t, double, std::string> Widened(Number value) {
    if constexpr (std::is_floating_point_v<Number>) {
      return static_cast<double>(value);
    } else if constexpr (std::is_signed_v<Number>) {
      return static_cast<int64_t>(value);
    } else {
      return static_cast<uint64_t>(value);
    }
  }
};
using LogFields = std::initializer_list<LogField>;

// From now on the log also takes what a driver says when it refuses to release an object.
void StartLogging(LogFormat format, LogLevel level);
// Writes what is queued. Later calls to Log are lost; refused releases go to standard error.
void StopLogging();

void SetLogLevel(LogLevel level);
LogLevel CurrentLogLevel();

void Log(LogLevel level, const std::string& message, LogFields fields = {});
inline void LogInfo(const std::string& message, LogFields fields = {}) {
  Log(LogLevel::kInfo, message, fields);
}
inline void LogWarn(const std::string& message, LogFields fields = {}) {
  Log(LogLevel::kWarn, message, fields);
}
inline void LogError(const std::string& message, LogFields fields = {}) {
  Log(LogLevel::kError, message, fields);
}

// Lines written per level, and lines lost to a full queue, since the start.
uint64_t LogMessages(LogLevel level);
uint64_t LogDropped();

// One per call site, static: at most `per_second` lines a second pass; the next line that passes learns
// how many were held back.
class LogLimit {
 public:
  explicit LogLimit(int per_second) : per_second_(per_second) {}
  // Whether to log now; `held_back` is the number since the last line that passed.
  bool Pass(uint64_t& held_back);

 private:
  const int per_second_;
  std::atomic<int64_t> second_{0};
  std::atomic<int> passed_{0};
  std::atomic<uint64_t> held_back_{0};
};

// One line of the log without its final newline; for the log itself and its tests.
std::string FormatLine(LogFormat format, absl::Time time, LogLevel level,
                       const std::string& message, LogFields fields);

}  // namespace gemmd

#endif  // GEMMD_SERVER_LOGGING_H_
