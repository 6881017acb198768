#include "server/failure_log.h"

#include "server/metrics/metrics.h"

namespace gemmd {

LogLevel LevelOf(const Failure& failure) {
  // gRPC's own answer, in no words, to a call that was cancelled before its request came.
  const bool has_no_request =
      failure.code == absl::StatusCode::kUnimplemented && failure.message.empty();
  const bool client_has_gone = failure.code == absl::StatusCode::kCancelled ||
                               failure.reason == "SESSION_ENDED" || has_no_request;
  return client_has_gone ? LogLevel::kDebug : LogLevel::kWarn;
}

void FailureLog::Write(const Failure& failure) {
  const LogLevel level = LevelOf(failure);
  uint64_t held_back = 0;
  if (!(level == LogLevel::kWarn ? warnings_ : of_clients_).Pass(held_back)) return;
  Log(level, what_,
      {{"rpc", failure.rpc},
       {"code", CodeName(static_cast<int>(failure.code))},
       {"reason", failure.reason},
       {"error", failure.message},
       {"microseconds", absl::ToInt64Microseconds(failure.took)},
       {"held_back", held_back}});
}

}  // namespace gemmd
