// What    How one operation is timed (README.md, "How a time is taken"): warm-ups, a cold L2 before
//         every sample, and the sum of its kernels' durations.
// Units   Microseconds.
// Errors  As the operation, the driver, CUPTI and SumPerSample.
// Threads One thread, with the context current.
#ifndef GEMMD_TESTS_BENCH_DEVICE_SAMPLER_H_
#define GEMMD_TESTS_BENCH_DEVICE_SAMPLER_H_

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/stream.h"
#include "tests/bench/device/cupti_timer.h"
#include "tests/bench/device/graph.h"
#include "tests/bench/host/kernel_record.h"

namespace gemmd::bench {

// Enqueues one operation on the sampler's stream.
using Operation = std::function<absl::Status()>;

struct GraphTimes {
  std::vector<double> kernel_us;
  std::vector<double> span_us;  // event to event around the replay
};

class Sampler {
 public:
  static absl::StatusOr<Sampler> Create(const cuda::DriverTable& driver, int64_t flush_bytes,
                                        int warmups);

  CUstream stream() const { return stream_.get(); }
  absl::Status Synchronize() const { return stream_.Synchronize(); }

  // The duration of one launch by events, to choose how often to repeat.
  absl::StatusOr<double> Estimate(const Operation& operation);
  // Host time of each of `count` launches; the GPU idles before each batch. No profiler attached.
  absl::StatusOr<std::vector<double>> HostTimes(const Operation& operation, int count);
  absl::StatusOr<KernelTimes> ColdKernelTimes(CuptiTimer& timer, const Operation& operation,
                                              int samples);
  absl::StatusOr<GraphTimes> ColdGraphTimes(CuptiTimer& timer, const GraphCalls& calls,
                                            const Operation& operation, int samples);

 private:
  Sampler(const cuda::DriverTable& driver, cuda::Stream stream, cuda::DeviceBuffer flush,
          cuda::Event begin, cuda::Event end, int warmups)
      : driver_(&driver),
        stream_(std::move(stream)),
        flush_(std::move(flush)),
        begin_(std::move(begin)),
        end_(std::move(end)),
        warmups_(warmups) {}

  // Writes the whole flush buffer with a value other than the last one.
  absl::Status FlushL2();
  absl::Status RunCold(const Operation& operation, int count);

  const cuda::DriverTable* driver_;
  cuda::Stream stream_;
  cuda::DeviceBuffer flush_;
  cuda::Event begin_;
  cuda::Event end_;
  int warmups_;
  uint32_t flush_value_ = 0;
};

}  // namespace gemmd::bench

#endif  // GEMMD_TESTS_BENCH_DEVICE_SAMPLER_H_
