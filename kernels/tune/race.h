// What    Times of several kernels for the same work, taken in turns, so that what changes with time
//         (clocks, heat, neighbours) changes all of them alike.
// Units   Nanoseconds.
// Errors  Race: what `control` says; DataLoss of a lane; ResourceExhausted DEVICE_BUSY: too many rounds
//         were disturbed. Another error of a lane ends that lane only.
// Threads One thread.
#ifndef GEMMD_KERNELS_TUNE_RACE_H_
#define GEMMD_KERNELS_TUNE_RACE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gemmd {

// Enqueues one launch.
using TunedLaunch = std::function<absl::Status()>;

class LaunchTimer {
 public:
  virtual ~LaunchTimer() = default;
  // The time of one launch that finds nothing in the caches.
  virtual absl::StatusOr<double> Time(const TunedLaunch& launch) = 0;
};

// Asked while tuning goes on, from its thread. All may be null.
struct TuningControl {
  // Before every round. Returns when the device is free for it, or an error that ends the tuning.
  std::function<absl::Status()> wait = nullptr;
  // Asked while a kernel compiles.
  std::function<bool()> cancelled = nullptr;
  // A count that grows with whatever else the device does: rounds during which it grew do not count.
  std::function<uint64_t()> disturbances = nullptr;
};

struct RaceOptions {
  int warmups = 2;  // rounds
  int samples = 15;
};

struct LaneTimes {
  absl::Status status;  // not OK: the lane fell out, and there are no times
  double median = 0;
  double fastest = 0;
  double slowest = 0;
  int samples = 0;
};

absl::StatusOr<std::vector<LaneTimes>> Race(LaunchTimer& timer,
                                            const std::vector<TunedLaunch>& lanes,
                                            const RaceOptions& options,
                                            const TuningControl& control);

// The lane with the least median; the first, unless another is faster by at least a hundredth. -1: none
// has times.
int Winner(const std::vector<LaneTimes>& lanes);

// Median, extremes and number of at least one time.
LaneTimes Summarize(std::vector<double> times);

}  // namespace gemmd

#endif  // GEMMD_KERNELS_TUNE_RACE_H_
