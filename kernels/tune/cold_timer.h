// What    Device time of one launch with a cold L2: a buffer of at least twice the L2 is written with a
//         value other than before, then the launch runs between two events. While the buffer is written
//         the host enqueues the rest, so the device does not wait in between. What the events of an
//         empty kernel take is taken off, so times compare with those of kernels alone.
// Errors  As cuda::Stream, and those of the launch.
// Threads One thread, with the context current.
// Source  The protocol of tests/bench, which sums kernels by CUPTI instead.
#ifndef GEMMD_KERNELS_TUNE_COLD_TIMER_H_
#define GEMMD_KERNELS_TUNE_COLD_TIMER_H_

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/stream.h"
#include "kernels/tune/race.h"

namespace gemmd {

// TuningConditions::protocol.
inline constexpr char kColdProtocol[] = "events around one launch, cold L2, less an empty kernel";

class ColdTimer : public LaunchTimer {
 public:
  static absl::StatusOr<ColdTimer> Create(const cuda::DriverTable& driver, uint64_t flush_bytes);

  CUstream stream() const { return stream_.get(); }
  int64_t flush_bytes() const { return static_cast<int64_t>(flush_.size()); }
  double empty_ns() const { return empty_ns_; }
  // The median of some launches of an empty kernel; comes off what Time returns from now on.
  absl::Status Calibrate(const TunedLaunch& empty);

  absl::StatusOr<double> Time(const TunedLaunch& launch) override;

 private:
  ColdTimer(const cuda::DriverTable& driver, cuda::Stream stream, cuda::DeviceBuffer flush,
            cuda::Event begin, cuda::Event end)
      : driver_(&driver),
        stream_(std::move(stream)),
        flush_(std::move(flush)),
        begin_(std::move(begin)),
        end_(std::move(end)) {}

  const cuda::DriverTable* driver_;
  cuda::Stream stream_;
  cuda::DeviceBuffer flush_;
  cuda::Event begin_;
  cuda::Event end_;
  uint32_t flush_value_ = 0;
  double empty_ns_ = 0;
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_TUNE_COLD_TIMER_H_
