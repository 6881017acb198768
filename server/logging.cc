#include "server/logging.h"

#include <spdlog/async.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/teardown.h"
#include "kernels/base/mutex.h"

namespace gemmd {
namespace {

constexpr const char* kLevelNames[kLogLevels] = {"trace", "debug", "info", "warn", "error"};
constexpr size_t kQueuedLines = 8192;

struct LogState {
  Mutex mutex;
  std::shared_ptr<spdlog::details::thread_pool> pool ABSL_GUARDED_BY(mutex);
  std::shared_ptr<spdlog::logger> logger ABSL_GUARDED_BY(mutex);
  std::atomic<LogFormat> format{LogFormat::kJson};
  std::atomic<LogLevel> level{LogLevel::kInfo};
  std::atomic<uint64_t> lines[kLogLevels] = {};
};

LogState& State() {
  static auto* state = new LogState;  // lives until the process ends: threads may log while it does
  return *state;
}

nlohmann::ordered_json ToJson(const LogField& field) {
  return std::visit([](const auto& value) { return nlohmann::ordered_json(value); }, field.value);
}

// ASCII: what a client chose must not draw on the terminal of whoever reads the log. Invalid UTF-8 becomes U+FFFD.
std::string Dump(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

// Needs no quotes in a text line.
bool IsPlain(const std::string& text) {
  const bool printable = std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
  return printable && !text.empty() && text.find_first_of("\"=\\") == std::string::npos;
}

std::string TextValue(const LogField& field) {
  const auto* text = std::get_if<std::string>(&field.value);
  if (text == nullptr) return Dump(ToJson(field));
  return IsPlain(*text) ? *text : Dump(ToJson(field));
}

std::string OneLine(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = ' ';
  }
  return text;
}

// A context that is lost refuses every object it ever gave.
void LogRefusedRelease(const std::string& message) {
  static LogLimit limit(5);
  uint64_t held_back = 0;
  if (!limit.Pass(held_back)) return;
  LogError("a driver object was not released", {{"error", message}, {"held_back", held_back}});
}

std::shared_ptr<spdlog::logger> Logger() {
  MutexLock lock(State().mutex);
  return State().logger;
}

}  // namespace

std::string FormatLine(LogFormat format, absl::Time time, LogLevel level,
                       const std::string& message, LogFields fields) {
  const std::string ts = absl::FormatTime("%Y-%m-%dT%H:%M:%E9SZ", time, absl::UTCTimeZone());
  const char* level_name = kLevelNames[static_cast<int>(level)];
  if (format != LogFormat::kJson) {
    std::string line = absl::StrCat(ts, " ", level_name, " ", OneLine(message));
    for (const LogField& field : fields)
      absl::StrAppend(&line, " ", field.name, "=", TextValue(field));
    return line;
  }
  nlohmann::ordered_json json = {{"ts", ts}, {"level", level_name}, {"msg", message}};
  for (const LogField& field : fields) json[field.name] = ToJson(field);
  return Dump(json);
}

void StartLogging(LogFormat format, LogLevel level) {
  if (format == LogFormat::kAuto)
    format = isatty(STDERR_FILENO) == 1 ? LogFormat::kText : LogFormat::kJson;
  LogState& state = State();
  state.format = format;
  state.level = level;
  MutexLock lock(state.mutex);
  state.pool = std::make_shared<spdlog::details::thread_pool>(kQueuedLines, 1);
  state.logger = std::make_shared<spdlog::async_logger>(
      "gemmd", std::make_shared<spdlog::sinks::stderr_sink_mt>(), state.pool,
      spdlog::async_overflow_policy::overrun_oldest);
  state.logger->set_pattern("%v");  // FormatLine renders the whole line
  state.logger->set_level(spdlog::level::trace);
  ReportTeardownTo(&LogRefusedRelease);
}

void StopLogging() {
  ReportTeardownTo(nullptr);
  std::shared_ptr<spdlog::logger> logger;
  std::shared_ptr<spdlog::details::thread_pool> pool;
  {
    MutexLock lock(State().mutex);
    logger.swap(State().logger);
    pool.swap(State().pool);
  }
  // The last reference to the pool joins its thread, which writes the queue first.
}

void SetLogLevel(LogLevel level) { State().level = level; }
LogLevel CurrentLogLevel() { return State().level; }

void Log(LogLevel level, const std::string& message, LogFields fields) {
  LogState& state = State();
  if (level < state.level.load()) return;
  const std::shared_ptr<spdlog::logger> logger = Logger();
  if (logger == nullptr) return;
  ++state.lines[static_cast<int>(level)];
  logger->log(spdlog::level::info,
              spdlog::string_view_t(FormatLine(state.format, absl::Now(), level, message, fields)));
}

uint64_t LogMessages(LogLevel level) { return State().lines[static_cast<int>(level)]; }

uint64_t LogDropped() {
  MutexLock lock(State().mutex);
  return State().pool == nullptr ? 0 : State().pool->overrun_counter();
}

bool LogLimit::Pass(uint64_t& held_back) {
  const int64_t now = absl::ToUnixSeconds(absl::Now());
  int64_t second = second_.load();
  if (second != now && second_.compare_exchange_strong(second, now)) passed_ = 0;
  if (passed_.fetch_add(1) >= per_second_) {
    ++held_back_;
    return false;
  }
  held_back = held_back_.exchange(0);
  return true;
}

}  // namespace gemmd
