// What    Pauses between repeated attempts: exponential, with jitter, never past a deadline.
//         RetryInfo of the daemon takes precedence over the schedule.
// Threads One object per call; not thread-safe.
#ifndef GEMMD_CLIENT_RETRY_H_
#define GEMMD_CLIENT_RETRY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace gemmd::client {

struct RetryPolicy {
  int max_attempts = 6;  // the first one included
  absl::Duration initial_pause = absl::Milliseconds(20);
  absl::Duration longest_pause = absl::Seconds(1);
};

class Backoff {
 public:
  explicit Backoff(const RetryPolicy& policy) : policy_(policy), pause_(policy.initial_pause) {}

  // The pause before the next attempt after `failure`, or a negative duration when there is none:
  // the code is not Unavailable, the attempts are used up, or the pause would pass `deadline`.
  absl::Duration Next(const absl::Status& failure, absl::Time deadline);

  // As Next, and sleeps. Returns whether to try again.
  bool Wait(const absl::Status& failure, absl::Time deadline);

 private:
  RetryPolicy policy_;
  absl::Duration pause_;
  int attempts_ = 1;
};

}  // namespace gemmd::client

#endif  // GEMMD_CLIENT_RETRY_H_
