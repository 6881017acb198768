#include "tests/bench/device/sampler.h"

#include <chrono>

#include "kernels/base/status.h"

namespace gemmd::bench {
namespace {

constexpr int kLaunchesInFlight = 64;  // far below the length of the driver's queue

}  // namespace

absl::StatusOr<Sampler> Sampler::Create(const cuda::DriverTable& driver, int64_t flush_bytes,
                                        int warmups) {
  GEMMD_ASSIGN_OR_RETURN(cuda::Stream stream, cuda::Stream::Create(driver));
  GEMMD_ASSIGN_OR_RETURN(cuda::DeviceBuffer flush,
                         cuda::DeviceBuffer::Create(driver, static_cast<uint64_t>(flush_bytes)));
  GEMMD_ASSIGN_OR_RETURN(cuda::Event begin, cuda::Event::Create(driver, cuda::EventKind::kTiming));
  GEMMD_ASSIGN_OR_RETURN(cuda::Event end, cuda::Event::Create(driver, cuda::EventKind::kTiming));
  return Sampler(driver, std::move(stream), std::move(flush), std::move(begin), std::move(end),
                 warmups);
}

absl::Status Sampler::FlushL2() {
  flush_value_ = ~flush_value_;
  GEMMD_CUDA(*driver_, cuMemsetD32Async, flush_.address(), flush_value_, flush_.size() / 4,
             stream());
  return absl::OkStatus();
}

absl::Status Sampler::RunCold(const Operation& operation, int count) {
  for (int i = 0; i < count; ++i) {
    GEMMD_RETURN_IF_ERROR(FlushL2());
    GEMMD_RETURN_IF_ERROR(operation());
  }
  return Synchronize();
}

absl::StatusOr<double> Sampler::Estimate(const Operation& operation) {
  GEMMD_RETURN_IF_ERROR(operation());
  GEMMD_RETURN_IF_ERROR(begin_.Record(stream()));
  GEMMD_RETURN_IF_ERROR(operation());
  GEMMD_RETURN_IF_ERROR(end_.Record(stream()));
  GEMMD_RETURN_IF_ERROR(Synchronize());
  GEMMD_ASSIGN_OR_RETURN(const absl::Duration elapsed, cuda::Elapsed(begin_, end_));
  return absl::ToDoubleMicroseconds(elapsed);
}

absl::StatusOr<std::vector<double>> Sampler::HostTimes(const Operation& operation, int count) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> times;
  for (int i = 0; i < count; ++i) {
    if (i % kLaunchesInFlight == 0) GEMMD_RETURN_IF_ERROR(Synchronize());
    const Clock::time_point start = Clock::now();
    const absl::Status status = operation();
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    GEMMD_RETURN_IF_ERROR(status);
  }
  GEMMD_RETURN_IF_ERROR(Synchronize());
  return times;
}

absl::StatusOr<KernelTimes> Sampler::ColdKernelTimes(CuptiTimer& timer, const Operation& operation,
                                                     int samples) {
  GEMMD_RETURN_IF_ERROR(RunCold(operation, warmups_));
  GEMMD_RETURN_IF_ERROR(timer.Start());
  const absl::Status ran = RunCold(operation, samples);
  const absl::StatusOr<std::vector<KernelRecord>> records = timer.Stop();
  GEMMD_RETURN_IF_ERROR(ran);
  GEMMD_RETURN_IF_ERROR(records.status());
  return SumPerSample(*records, samples);
}

absl::StatusOr<GraphTimes> Sampler::ColdGraphTimes(CuptiTimer& timer, const GraphCalls& calls,
                                                   const Operation& operation, int samples) {
  GEMMD_ASSIGN_OR_RETURN(const Graph graph, Graph::Capture(*driver_, calls, stream(), operation));
  GraphTimes times;
  const auto replay = [&] { return graph.Launch(stream()); };
  GEMMD_RETURN_IF_ERROR(RunCold(replay, warmups_));
  // The span without a profiler, then the kernels alone.
  for (int i = 0; i < samples; ++i) {
    GEMMD_RETURN_IF_ERROR(FlushL2());
    GEMMD_RETURN_IF_ERROR(begin_.Record(stream()));
    GEMMD_RETURN_IF_ERROR(replay());
    GEMMD_RETURN_IF_ERROR(end_.Record(stream()));
    GEMMD_RETURN_IF_ERROR(Synchronize());
    GEMMD_ASSIGN_OR_RETURN(const absl::Duration elapsed, cuda::Elapsed(begin_, end_));
    times.span_us.push_back(absl::ToDoubleMicroseconds(elapsed));
  }
  GEMMD_RETURN_IF_ERROR(timer.Start());
  const absl::Status ran = RunCold(replay, samples);
  const absl::StatusOr<std::vector<KernelRecord>> records = timer.Stop();
  GEMMD_RETURN_IF_ERROR(ran);
  GEMMD_RETURN_IF_ERROR(records.status());
  GEMMD_ASSIGN_OR_RETURN(const KernelTimes kernels, SumPerSample(*records, samples));
  times.kernel_us = kernels.microseconds;
  return times;
}

}  // namespace gemmd::bench
