#include "tests/bench/device/runner.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <set>
#include <thread>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/base/status.h"
#include "tests/bench/host/random_inputs.h"

namespace gemmd::bench {
namespace {

constexpr int64_t kMostInspectedBytes = int64_t{32} << 20;  // larger outputs: sampled rows only
constexpr int64_t kCheckedRows = 4;
constexpr int kMostHostSamples = 101;
constexpr double kHostBudgetUs = 20000;    // of GPU time behind the host samples of one point
constexpr double kSlowOperationUs = 4000;  // from here on graphs are replayed less often
constexpr int kSlowGraphSamples = 7;

std::string PointName(const std::string& implementation, const std::string& format, int64_t n,
                      int64_t k, int64_t m) {
  return absl::StrCat(implementation, " ", format, " N=", n, " K=", k, " M=", m);
}

std::string PointName(const Row& row) {
  return PointName(row.implementation, row.format, row.n, row.k, row.m);
}

int64_t MostM(const std::vector<Problem>& problems) {
  int64_t most = 1;
  for (const Problem& problem : problems) {
    for (const int64_t m : problem.m) most = std::max(most, m);
  }
  return most;
}

int64_t MostOutputBytes(const std::vector<Problem>& problems) {
  int64_t most = 2;
  for (const Problem& problem : problems) {
    for (const int64_t m : problem.m) most = std::max(most, m * problem.n * 2);
  }
  return most;
}

void Progress(const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); }

}  // namespace

absl::StatusOr<std::unique_ptr<Runner>> Runner::Create(const RunnerParts& parts,
                                                       const Options& options,
                                                       const std::vector<Problem>& problems) {
  GEMMD_ASSIGN_OR_RETURN(Sampler sampler,
                         Sampler::Create(*parts.driver, options.flush_bytes, options.warmups));
  GEMMD_ASSIGN_OR_RETURN(
      cuda::DeviceBuffer y,
      cuda::DeviceBuffer::Create(*parts.driver, static_cast<uint64_t>(MostOutputBytes(problems))));
  std::unique_ptr<Runner> runner(
      new Runner(parts, options, problems, std::move(sampler), std::move(y), MostM(problems)));
  if (options.graph) {
    GEMMD_ASSIGN_OR_RETURN(runner->graph_calls_, GraphCalls::Load());
  }
  return runner;
}

Runner::Runner(const RunnerParts& parts, const Options& options, std::vector<Problem> problems,
               Sampler sampler, cuda::DeviceBuffer y, int64_t most_m)
    : parts_(parts),
      options_(options),
      problems_(std::move(problems)),
      sampler_(std::move(sampler)),
      y_(std::move(y)),
      inputs_(*parts.driver, most_m, static_cast<uint64_t>(options.seed) + 1000) {}

bool Runner::TimeIsUp() const { return absl::Now() >= parts_.deadline; }

// Several threads, because making weights and compiling kernels is work of the host.
void Runner::LoadLayers() {
  layers_.resize(problems_.size());
  std::vector<absl::Status> failures(problems_.size());
  std::atomic<size_t> next{0};
  const auto load = [&](size_t i) -> absl::Status {
    const Problem& problem = problems_[i];
    GEMMD_ASSIGN_OR_RETURN(const BenchFormat format, FindFormat(problem.format));
    GEMMD_ASSIGN_OR_RETURN(
        layers_[i], BenchLayer::Load(*parts_.device, format, problem.n, problem.k,
                                     static_cast<uint64_t>(options_.seed) + i, options_.check));
    if (options_.fp16_accumulation) layers_[i]->WaitForHalfSums();
    return absl::OkStatus();
  };
  const auto work = [&] {
    for (size_t i = next++; i < problems_.size(); i = next++) {
      failures[i] = TimeIsUp() ? absl::DeadlineExceededError("no time left") : load(i);
    }
  };
  std::vector<std::thread> threads;
  const unsigned count = std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
  for (unsigned i = 0; i < count; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < problems_.size(); ++i) {
    if (failures[i].ok()) continue;
    const Problem& problem = problems_[i];
    missing_.push_back(absl::StrCat("gemmd ", problem.format, " N=", problem.n, " K=", problem.k,
                                    ": ", failures[i].ToString()));
    Progress(missing_.back());
  }
}

absl::Status Runner::AddPoint(const BenchLayer& layer, int64_t m) {
  GEMMD_ASSIGN_OR_RETURN(GemmCall call, layer.MakeCall(inputs_, m, y_.address()));
  call.batch_invariant = options_.batch_invariant;
  Point point;
  GEMMD_ASSIGN_OR_RETURN(point.row, layer.Describe(call));
  if (call.batch_invariant) point.row.implementation = "gemmd_batch_invariant";
  point.operation = layer.MakeOperation(call, sampler_.stream());
  point.layer = &layer;
  point.seed = static_cast<uint64_t>(options_.seed) + points_.size();
  points_.push_back(std::move(point));
  return absl::OkStatus();
}

// Nothing where no kernel of the layer sums in float16. Results: tests/gpu/half_sums_test.cc.
absl::Status Runner::AddHalfSums(const BenchLayer& layer, int64_t m) {
  if (layer.format().x != kFloat16 || !layer.has_half_sums()) return absl::OkStatus();
  GEMMD_ASSIGN_OR_RETURN(GemmCall call, layer.MakeCall(inputs_, m, y_.address()));
  call.fp16_accumulation = true;
  Point point;
  GEMMD_ASSIGN_OR_RETURN(point.row, layer.Describe(call));
  point.row.implementation = "gemmd_fp16_accumulation";
  point.operation = layer.MakeOperation(call, sampler_.stream());
  points_.push_back(std::move(point));
  return absl::OkStatus();
}

// Nothing where the layer quantizes no x. Results: tests/gpu/quantize_test.cc.
absl::Status Runner::AddQuantized(const BenchLayer& layer, int64_t m) {
  GEMMD_ASSIGN_OR_RETURN(BenchLayer::QuantizedPoint quantized,
                         layer.MakeQuantized(inputs_, m, y_.address(), sampler_.stream()));
  if (quantized.operation == nullptr) return absl::OkStatus();
  Point point;
  point.row = std::move(quantized.row);
  point.operation = std::move(quantized.operation);
  points_.push_back(std::move(point));
  return absl::OkStatus();
}

absl::Status Runner::PrepareWeights(const NumberFormat& type, int64_t n, int64_t k,
                                    uintptr_t& address) {
  const std::string key = absl::StrCat(type.bits, " ", n, " ", k);
  auto found = control_weights_.find(key);
  if (found == control_weights_.end()) {
    const Buffer host = RandomActivations(
        type, n * k, static_cast<uint64_t>(options_.seed) + control_weights_.size());
    GEMMD_ASSIGN_OR_RETURN(cuda::DeviceBuffer device,
                           cuda::DeviceBuffer::Create(*parts_.driver, host.size()));
    GEMMD_CUDA(*parts_.driver, cuMemcpyHtoD, device.address(), host.data(), host.size());
    found = control_weights_.emplace(key, std::move(device)).first;
  }
  address = found->second.address();
  return absl::OkStatus();
}

absl::Status Runner::AddControl(const Problem& shape, int64_t m, CublasKind kind) {
  const bool is_fp8 = kind == CublasKind::kFloat8Tensor;
  const NumberFormat& type = is_fp8 ? kFloat8E4M3 : kBFloat16;
  CublasProblem problem{.kind = kind, .m = m, .n = shape.n, .k = shape.k, .y = y_.address()};
  GEMMD_RETURN_IF_ERROR(PrepareWeights(type, shape.n, shape.k, problem.w));
  GEMMD_ASSIGN_OR_RETURN(const Inputs::Matrix x, inputs_.Activations(type, shape.k));
  problem.x = x.address;
  Point point;
  point.row.implementation = is_fp8 ? "cublas_fp8_tensor" : "cublas_bf16";
  point.row.format = is_fp8 ? "w8a8_fp8_tensor" : "w16a16_bf16";
  point.row.n = shape.n;
  point.row.k = shape.k;
  point.row.m = m;
  point.row.x_type = is_fp8 ? "e4m3" : "bfloat16";
  point.row.y_type = "bfloat16";
  point.row.activation_used = point.row.x_type;
  point.row.weight_bytes = shape.n * shape.k * type.bits / 8;
  point.row.activation_bytes = m * shape.k * type.bits / 8 + m * shape.n * 2;
  GEMMD_ASSIGN_OR_RETURN(point.operation, parts_.cublas->Prepare(problem, sampler_.stream()));
  points_.push_back(std::move(point));
  return absl::OkStatus();
}

void Runner::AddControls() {
  if (parts_.cublas == nullptr) return;
  std::set<std::pair<int64_t, int64_t>> shapes;
  for (const Problem& problem : problems_) {
    if (!shapes.emplace(problem.n, problem.k).second) continue;
    for (const int64_t m : problem.m) {
      for (const CublasKind kind : {CublasKind::kBFloat16, CublasKind::kFloat8Tensor}) {
        const absl::Status added = AddControl(problem, m, kind);
        if (added.ok()) continue;
        missing_.push_back(PointName("cublas",
                                     kind == CublasKind::kBFloat16 ? "bf16" : "fp8_tensor",
                                     problem.n, problem.k, m) +
                           ": " + added.ToString());
      }
    }
  }
}

void Runner::AddPoints() {
  for (size_t i = 0; i < problems_.size(); ++i) {
    if (layers_[i] == nullptr) continue;
    for (const int64_t m : problems_[i].m) {
      absl::Status added = AddPoint(*layers_[i], m);
      if (added.ok() && options_.quantize_x) added = AddQuantized(*layers_[i], m);
      if (added.ok() && options_.fp16_accumulation) added = AddHalfSums(*layers_[i], m);
      if (added.ok()) continue;
      missing_.push_back(
          PointName("gemmd", problems_[i].format, problems_[i].n, problems_[i].k, m) + ": " +
          added.ToString());
    }
  }
  AddControls();
  std::stable_sort(points_.begin(), points_.end(),
                   [](const Point& a, const Point& b) { return a.row.m < b.row.m; });
}

absl::Status Runner::Check(Point& point) {
  const SampleChecker* checker = point.layer == nullptr ? nullptr : point.layer->checker();
  if (checker == nullptr) return absl::OkStatus();
  const Row& row = point.row;
  const int64_t row_bytes = row.n * point.layer->format().y.bits / 8;
  GEMMD_CUDA(*parts_.driver, cuMemsetD8Async, y_.address(), kPoisonByte,
             static_cast<size_t>(row.m * row_bytes), sampler_.stream());
  GEMMD_RETURN_IF_ERROR(point.operation());
  GEMMD_RETURN_IF_ERROR(sampler_.Synchronize());
  const BenchFormat& format = point.layer->format();
  GEMMD_ASSIGN_OR_RETURN(const Inputs::Matrix x, inputs_.Activations(format.x, row.k));
  const int64_t scale_columns = format.XScaleColumns(row.k);
  std::vector<Buffer> xs, ys;
  std::vector<std::vector<float>> scales;
  for (const int64_t index : SampleRows(row.m, kCheckedRows, point.seed)) {
    xs.push_back(HostRow(x, index));
    ys.emplace_back(static_cast<size_t>(row_bytes));
    GEMMD_CUDA(*parts_.driver, cuMemcpyDtoH, ys.back().data(),
               y_.address() + static_cast<uintptr_t>(index * row_bytes), ys.back().size());
    if (scale_columns == 0) continue;
    GEMMD_ASSIGN_OR_RETURN(const Inputs::Matrix all, inputs_.Scales(format.x, scale_columns));
    scales.emplace_back(static_cast<size_t>(scale_columns));
    std::memcpy(scales.back().data(), HostRow(all, index).data(), scales.back().size() * 4);
  }
  point.row.check = checker->Compare(xs, scales, ys);
  if (row.m * row_bytes > kMostInspectedBytes) return absl::OkStatus();
  Buffer whole(static_cast<size_t>(row.m * row_bytes));
  GEMMD_CUDA(*parts_.driver, cuMemcpyDtoH, whole.data(), y_.address(), whole.size());
  CheckResult& check = point.row.check;
  check.inspected = row.m * row.n;
  check.unwritten = checker->CountUnwritten(whole);
  check.passed = check.passed && check.unwritten == 0;
  return absl::OkStatus();
}

absl::Status Runner::CheckAndTimeHost(Point& point) {
  GEMMD_RETURN_IF_ERROR(Check(point));
  GEMMD_ASSIGN_OR_RETURN(point.estimate_us, sampler_.Estimate(point.operation));
  const double affordable = kHostBudgetUs / std::max(point.estimate_us, 1.0);
  const int count = std::clamp(static_cast<int>(affordable), 5, kMostHostSamples);
  GEMMD_ASSIGN_OR_RETURN(std::vector<double> host, sampler_.HostTimes(point.operation, count));
  point.row.host_us = Summarize(std::move(host));
  return absl::OkStatus();
}

absl::Status Runner::TimeKernels(Point& point) {
  Row& row = point.row;
  GEMMD_ASSIGN_OR_RETURN(KernelTimes times, sampler_.ColdKernelTimes(*parts_.timer, point.operation,
                                                                     options_.samples));
  row.gpu = parts_.monitor->Read();
  row.kernel_us = Summarize(std::move(times.microseconds));
  row.device_kernels = std::move(times.kernels);
  if (!graph_calls_.has_value()) return absl::OkStatus();
  const int samples = point.estimate_us > kSlowOperationUs
                          ? std::min(options_.samples, kSlowGraphSamples)
                          : options_.samples;
  absl::StatusOr<GraphTimes> graph =
      sampler_.ColdGraphTimes(*parts_.timer, *graph_calls_, point.operation, samples);
  if (!graph.ok()) return Annotate(graph.status(), "graph replay");
  row.graph_us = Summarize(std::move(graph->kernel_us));
  row.graph_span_us = Summarize(std::move(graph->span_us));
  return absl::OkStatus();
}

template <typename Step>
absl::Status Runner::ForEachPoint(const char* what, absl::Time deadline, Step step) {
  size_t count = 0;
  for (Point& point : points_) {
    if (!point.row.error.empty()) continue;
    if (absl::Now() >= deadline) {
      point.row.error = absl::StrCat("not measured: the time limit came before ", what);
      continue;
    }
    const absl::Status status = step(point);
    if (!status.ok()) point.row.error = status.ToString();
    if (status.code() == absl::StatusCode::kDataLoss) return Annotate(status, PointName(point.row));
    if (++count % 25 == 0) {
      Progress(absl::StrCat(what, ": ", count, " of ", points_.size(), " points"));
    }
  }
  return absl::OkStatus();
}

absl::Status Runner::Run() {
  Progress(absl::StrCat("loading ", problems_.size(), " layers"));
  LoadLayers();
  AddPoints();
  const absl::Time now = absl::Now();
  const absl::Time half = now + (parts_.deadline - now) / 2;
  absl::Status status = ForEachPoint("results and host times", half,
                                     [this](Point& point) { return CheckAndTimeHost(point); });
  std::stable_sort(points_.begin(), points_.end(),
                   [](const Point& a, const Point& b) { return a.estimate_us < b.estimate_us; });
  if (status.ok()) {
    status = ForEachPoint("kernel times", parts_.deadline, [this](Point& point) {
      const absl::Status timed = TimeKernels(point);
      Progress(gemmd::bench::Describe(point.row));
      return timed;
    });
  }
  CollectRows();
  return status;
}

// In an order that does not depend on speed, so that two files can be compared line by line.
void Runner::CollectRows() {
  for (Point& point : points_) {
    if (point.row.kernel_us.samples > 0 || point.row.check.elements > 0) {
      done_.push_back(std::move(point.row));
    } else {
      missing_.push_back(absl::StrCat(PointName(point.row), ": ", point.row.error));
    }
  }
  std::sort(done_.begin(), done_.end(), [](const Row& a, const Row& b) {
    return std::tie(a.implementation, a.format, a.n, a.k, a.m) <
           std::tie(b.implementation, b.format, b.n, b.k, b.m);
  });
}

}  // namespace gemmd::bench
