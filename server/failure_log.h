// What    The log line of a call or request that failed. One whose client cancelled it or went away is no fault of
//         anybody here: it is told at level debug, others are warnings. Rate-limited, each level for itself.
// Threads Thread-safe.
#ifndef GEMMD_SERVER_FAILURE_LOG_H_
#define GEMMD_SERVER_FAILURE_LOG_H_

#include <atomic>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/logging.h"

namespace gemmd {

struct Failure {
  std::string rpc;
  absl::StatusCode code = absl::StatusCode::kUnknown;
  std::string reason;
  std::string message;
  absl::Duration took;
};

// One per call site, static.
class FailureLog {
 public:
  // `what`: the line's message, such as "call failed".
  FailureLog(const char* what, int per_second)
      : what_(what), warnings_(per_second), of_clients_(per_second) {}
  void Write(const Failure& failure);

 private:
  const char* const what_;
  LogLimit warnings_;
  LogLimit of_clients_;
};

// The level of the line.
LogLevel LevelOf(const Failure& failure);

}  // namespace gemmd

#endif  // GEMMD_SERVER_FAILURE_LOG_H_
