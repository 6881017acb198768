#include "client/retry.h"

#include <algorithm>
#include <chrono>

#include "absl/time/clock.h"
#include "client/rpc_status.h"

namespace gemmd::client {
namespace {

// Half to all of `pause`. The low bits of the clock are jitter enough to keep clients apart.
absl::Duration Jittered(absl::Duration pause) {
  const auto ticks = std::chrono::steady_clock::now().time_since_epoch().count();
  return pause * (0.5 + static_cast<double>((ticks / 64) % 512) / 1024.0);
}

}  // namespace

absl::Duration Backoff::Next(const absl::Status& failure, absl::Time deadline) {
  const absl::Duration none = -absl::Seconds(1);
  if (failure.code() != absl::StatusCode::kUnavailable || attempts_ >= policy_.max_attempts)
    return none;
  const absl::Duration pause = RetryDelayOf(failure).value_or(Jittered(pause_));
  if (absl::Now() + pause >= deadline) return none;
  ++attempts_;
  pause_ = std::min(pause_ * 2, policy_.longest_pause);
  return pause;
}

bool Backoff::Wait(const absl::Status& failure, absl::Time deadline) {
  const absl::Duration pause = Next(failure, deadline);
  if (pause < absl::ZeroDuration()) return false;
  absl::SleepFor(pause);
  return true;
}

}  // namespace gemmd::client
