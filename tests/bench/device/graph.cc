#include "tests/bench/device/graph.h"

#include <utility>

#include "kernels/base/status.h"
#include "tests/bench/device/shared_library.h"

namespace gemmd::bench {
namespace {

// cuda.h renames some calls to a version; the name looked up follows the declaration.
#define GEMMD_BENCH_QUOTE(name) #name
#define GEMMD_BENCH_SYMBOL(name) GEMMD_BENCH_QUOTE(name)

}  // namespace

absl::StatusOr<GraphCalls> GraphCalls::Load() {
  GEMMD_ASSIGN_OR_RETURN(const SharedLibrary driver, SharedLibrary::Load("", {"libcuda.so.1"}));
  GraphCalls calls;
  GEMMD_RETURN_IF_ERROR(driver.Find(GEMMD_BENCH_SYMBOL(cuStreamBeginCapture), calls.begin_capture));
  GEMMD_RETURN_IF_ERROR(driver.Find(GEMMD_BENCH_SYMBOL(cuStreamEndCapture), calls.end_capture));
  GEMMD_RETURN_IF_ERROR(
      driver.Find(GEMMD_BENCH_SYMBOL(cuGraphInstantiateWithFlags), calls.instantiate));
  GEMMD_RETURN_IF_ERROR(driver.Find(GEMMD_BENCH_SYMBOL(cuGraphLaunch), calls.launch));
  GEMMD_RETURN_IF_ERROR(driver.Find(GEMMD_BENCH_SYMBOL(cuGraphDestroy), calls.destroy));
  GEMMD_RETURN_IF_ERROR(driver.Find(GEMMD_BENCH_SYMBOL(cuGraphExecDestroy), calls.destroy_exec));
  return calls;
}

absl::StatusOr<Graph> Graph::Capture(const cuda::DriverTable& driver, const GraphCalls& calls,
                                     CUstream stream, const std::function<absl::Status()>& work) {
  GEMMD_RETURN_IF_ERROR(
      cuda::ToStatus(driver, calls.begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                     "cuStreamBeginCapture"));
  const absl::Status worked = work();
  CUgraph graph = nullptr;
  // Also after an error: the stream must leave capture mode.
  const absl::Status ended =
      cuda::ToStatus(driver, calls.end_capture(stream, &graph), "cuStreamEndCapture");
  CUgraphExec exec = nullptr;
  absl::Status status = worked.ok() ? ended : worked;
  if (status.ok()) {
    status = cuda::ToStatus(driver, calls.instantiate(&exec, graph, 0), "cuGraphInstantiate");
  }
  if (graph != nullptr) calls.destroy(graph);
  GEMMD_RETURN_IF_ERROR(status);
  return Graph(driver, calls, exec);
}

Graph::Graph(Graph&& other) noexcept
    : driver_(other.driver_), calls_(other.calls_), exec_(std::exchange(other.exec_, nullptr)) {}

Graph::~Graph() {
  if (exec_ != nullptr) calls_->destroy_exec(exec_);
}

absl::Status Graph::Launch(CUstream stream) const {
  return cuda::ToStatus(*driver_, calls_->launch(exec_, stream), "cuGraphLaunch");
}

}  // namespace gemmd::bench
