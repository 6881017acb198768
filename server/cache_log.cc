#include "server/cache_log.h"

#include <string>

#include "server/logging.h"

namespace gemmd {
namespace {

constexpr int kLinesPerSecond = 10;

void LogDroppedEntry(const CacheEvent& event) {
  static LogLimit limit(kLinesPerSecond);
  uint64_t held_back = 0;
  if (!limit.Pass(held_back)) return;
  LogWarn("kernel cache: unusable entry dropped", {{"key", event.key},
                                                   {"kernel", event.kernel},
                                                   {"kind", event.problem},
                                                   {"error", std::string(event.why.message())},
                                                   {"held_back", held_back}});
}

void LogDeadCompiler(const CacheEvent& event) {
  static LogLimit limit(kLinesPerSecond);
  uint64_t held_back = 0;
  if (!limit.Pass(held_back)) return;
  LogWarn("a compile helper died", {{"key", event.key},
                                    {"kernel", event.kernel},
                                    {"error", std::string(event.why.message())},
                                    {"held_back", held_back}});
}

}  // namespace

void LogCacheEvent(const CacheEvent& event) {
  switch (event.kind) {
    case CacheEvent::Kind::kEntryDropped:
      return LogDroppedEntry(event);
    case CacheEvent::Kind::kCompilerDied:
      return LogDeadCompiler(event);
  }
}

void LogCompiler(const StoreCompiler& compiler) {
  if (!compiler.name.empty()) {
    LogInfo("compiler found", {{"nvrtc", compiler.name}, {"path", compiler.path}});
  } else if (!compiler.problem.empty()) {
    LogWarn("no compiler: kernels that are not in the cache cannot be built",
            {{"error", compiler.problem}});
  }
}

}  // namespace gemmd
