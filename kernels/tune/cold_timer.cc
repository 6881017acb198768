#include "kernels/tune/cold_timer.h"

#include <algorithm>
#include <vector>

#include "kernels/base/status.h"

namespace gemmd {

absl::StatusOr<ColdTimer> ColdTimer::Create(const cuda::DriverTable& driver, uint64_t flush_bytes) {
  GEMMD_ASSIGN_OR_RETURN(cuda::Stream stream, cuda::Stream::Create(driver));
  GEMMD_ASSIGN_OR_RETURN(cuda::DeviceBuffer flush, cuda::DeviceBuffer::Create(driver, flush_bytes));
  GEMMD_ASSIGN_OR_RETURN(cuda::Event begin, cuda::Event::Create(driver, cuda::EventKind::kTiming));
  GEMMD_ASSIGN_OR_RETURN(cuda::Event end, cuda::Event::Create(driver, cuda::EventKind::kTiming));
  return ColdTimer(driver, std::move(stream), std::move(flush), std::move(begin), std::move(end));
}

absl::Status ColdTimer::Calibrate(const TunedLaunch& empty) {
  constexpr int kWarmups = 3;
  constexpr int kSamples = 21;
  empty_ns_ = 0;
  std::vector<double> times;
  for (int i = 0; i < kWarmups + kSamples; ++i) {
    GEMMD_ASSIGN_OR_RETURN(const double time, Time(empty));
    if (i >= kWarmups) times.push_back(time);
  }
  empty_ns_ = Summarize(std::move(times)).median;
  return absl::OkStatus();
}

absl::StatusOr<double> ColdTimer::Time(const TunedLaunch& launch) {
  flush_value_ = ~flush_value_;
  GEMMD_CUDA(*driver_, cuMemsetD32Async, flush_.address(), flush_value_, flush_.size() / 4, stream());
  GEMMD_RETURN_IF_ERROR(begin_.Record(stream()));
  const absl::Status launched = launch();
  GEMMD_RETURN_IF_ERROR(end_.Record(stream()));
  GEMMD_RETURN_IF_ERROR(stream_.Synchronize());
  GEMMD_RETURN_IF_ERROR(launched);
  GEMMD_ASSIGN_OR_RETURN(const absl::Duration elapsed, cuda::Elapsed(begin_, end_));
  return std::max(0.0, absl::ToDoubleNanoseconds(elapsed) - empty_ns_);
}

}  // namespace gemmd
