// What    Stream capture and replay of CUDA graphs: driver calls that gemmd itself does not need.
// Errors  As cuda::ToStatus; Unavailable: the driver lacks a call.
// Threads One thread at a time, with the context current.
#ifndef GEMMD_TESTS_BENCH_DEVICE_GRAPH_H_
#define GEMMD_TESTS_BENCH_DEVICE_GRAPH_H_

#include <cuda.h>

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/driver.h"

namespace gemmd::bench {

struct GraphCalls {
  decltype(&::cuStreamBeginCapture) begin_capture = nullptr;
  decltype(&::cuStreamEndCapture) end_capture = nullptr;
  decltype(&::cuGraphInstantiateWithFlags) instantiate = nullptr;
  decltype(&::cuGraphLaunch) launch = nullptr;
  decltype(&::cuGraphDestroy) destroy = nullptr;
  decltype(&::cuGraphExecDestroy) destroy_exec = nullptr;

  static absl::StatusOr<GraphCalls> Load();
};

// What `work` enqueues on `stream`, ready to be replayed.
class Graph {
 public:
  static absl::StatusOr<Graph> Capture(const cuda::DriverTable& driver, const GraphCalls& calls,
                                       CUstream stream, const std::function<absl::Status()>& work);
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) = delete;
  ~Graph();

  absl::Status Launch(CUstream stream) const;

 private:
  Graph(const cuda::DriverTable& driver, const GraphCalls& calls, CUgraphExec exec)
      : driver_(&driver), calls_(&calls), exec_(exec) {}

  const cuda::DriverTable* driver_;
  const GraphCalls* calls_;
  CUgraphExec exec_;
};

}  // namespace gemmd::bench

#endif  // GEMMD_TESTS_BENCH_DEVICE_GRAPH_H_
