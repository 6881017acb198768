// What    Measures every point of a list of problems on one GPU. Two passes: first everything that
//         a profiler would disturb (right results, host time; small M first, half of the time),
//         then kernel times under CUPTI, the fastest operations first: a time limit cuts the
//         slowest.
// Errors  A point that fails becomes a row with its error; only a lost context ends the run.
// Threads One thread with the context current; layers are loaded by several.
#ifndef GEMMD_TESTS_BENCH_DEVICE_RUNNER_H_
#define GEMMD_TESTS_BENCH_DEVICE_RUNNER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/exec/device.h"
#include "kernels/cuda/context.h"
#include "tests/bench/device/bench_layer.h"
#include "tests/bench/device/cublas_control.h"
#include "tests/bench/device/cupti_timer.h"
#include "tests/bench/device/gpu_monitor.h"
#include "tests/bench/device/inputs.h"
#include "tests/bench/device/sampler.h"
#include "tests/bench/host/options.h"
#include "tests/bench/host/report.h"

namespace gemmd::bench {

struct RunnerParts {
  const cuda::DriverTable* driver = nullptr;
  const cuda::PrimaryContext* context = nullptr;
  Device* device = nullptr;
  CuptiTimer* timer = nullptr;
  GpuMonitor* monitor = nullptr;
  CublasControl* cublas = nullptr;  // null: no controls
  absl::Time deadline;
};

class Runner {
 public:
  static absl::StatusOr<std::unique_ptr<Runner>> Create(const RunnerParts& parts,
                                                        const Options& options,
                                                        const std::vector<Problem>& problems);

  // Measures until everything is done or the deadline has passed.
  absl::Status Run();

  const std::vector<Row>& rows() const { return done_; }
  const std::vector<std::string>& missing() const { return missing_; }

 private:
  struct Point {
    Row row;
    Operation operation;
    double estimate_us = 0;
    const BenchLayer* layer = nullptr;  // null: results are not compared
    uint64_t seed = 0;
  };

  Runner(const RunnerParts& parts, const Options& options, std::vector<Problem> problems,
         Sampler sampler, cuda::DeviceBuffer y, int64_t most_m);

  void LoadLayers();
  void AddPoints();
  absl::Status AddPoint(const BenchLayer& layer, int64_t m);
  absl::Status AddHalfSums(const BenchLayer& layer, int64_t m);
  absl::Status AddQuantized(const BenchLayer& layer, int64_t m);
  void AddControls();
  absl::Status AddControl(const Problem& shape, int64_t m, CublasKind kind);
  absl::Status PrepareWeights(const NumberFormat& type, int64_t n, int64_t k, uintptr_t& address);

  absl::Status CheckAndTimeHost(Point& point);
  absl::Status Check(Point& point);
  absl::Status TimeKernels(Point& point);
  // Runs `step` on every point that has no error yet; points after `deadline` get one.
  template <typename Step>
  absl::Status ForEachPoint(const char* what, absl::Time deadline, Step step);
  void CollectRows();
  bool TimeIsUp() const;

  const RunnerParts parts_;
  const Options options_;
  const std::vector<Problem> problems_;
  Sampler sampler_;
  cuda::DeviceBuffer y_;
  Inputs inputs_;
  std::optional<GraphCalls> graph_calls_;
  std::vector<std::unique_ptr<BenchLayer>> layers_;  // as problems_; null where loading failed
  std::map<std::string, cuda::DeviceBuffer> control_weights_;
  std::vector<Point> points_;
  std::vector<Row> done_;
  std::vector<std::string> missing_;
};

}  // namespace gemmd::bench

#endif  // GEMMD_TESTS_BENCH_DEVICE_RUNNER_H_
