#include "core/exec/cpu_device.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/exec/cpu_gemm.h"
#include "core/exec/cpu_matmul.h"
#include "core/exec/cpu_memory.h"
#include "core/exec/cpu_moe.h"
#include "core/exec/cpu_quantize.h"
#include "core/exec/thread_pool.h"
#include "core/quant/activations.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

int CoresOfThisProcess() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

std::string ProcessorName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "CPU";
}

DeviceDescription Describe(int threads) {
  struct utsname system;
  DeviceDescription description;
  description.id = "cpu";
  description.kind = DeviceKind::kCpu;
  description.name = ProcessorName();
  description.architecture = uname(&system) == 0 ? system.machine : "unknown";
  description.multiprocessors = threads;
  description.memory_bytes =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return description;
}

// Bytes held by layers and allocations; outlives the device's objects.
struct Usage {
  std::atomic<uint64_t> weights{0};
  std::atomic<uint64_t> allocations{0};
  uint64_t held() const { return weights + allocations; }
};

class CpuLayer : public DeviceLayer {
 public:
  CpuLayer(StandardTensor tensor, std::shared_ptr<Usage> usage)
      : tensor_(std::move(tensor)),
        bytes_(static_cast<uint64_t>(tensor_.total_bytes())),
        usage_(std::move(usage)) {
    usage_->weights += bytes_;
  }
  ~CpuLayer() override { usage_->weights -= bytes_; }
  const QuantSpec& spec() const override { return tensor_.spec; }
  const LayerShape& shape() const override { return tensor_.shape; }
  bool gate_up_interleaved() const override { return tensor_.gate_up_interleaved; }
  uint64_t bytes() const override { return bytes_; }
  const StandardTensor& tensor() const { return tensor_; }

 private:
  const StandardTensor tensor_;
  const uint64_t bytes_;
  const std::shared_ptr<Usage> usage_;
};

class CountedMemory : public Memory {
 public:
  CountedMemory(std::unique_ptr<Memory> memory, std::shared_ptr<Usage> usage)
      : memory_(std::move(memory)), usage_(std::move(usage)) {
    usage_->allocations += memory_->size();
  }
  ~CountedMemory() override { usage_->allocations -= memory_->size(); }
  uintptr_t address() const override { return memory_->address(); }
  uint64_t size() const override { return memory_->size(); }
  const char* kind() const override { return memory_->kind(); }

 private:
  const std::unique_ptr<Memory> memory_;
  const std::shared_ptr<Usage> usage_;
};

// At most `slots` holders at a time. The BLAS has a fixed number of work buffers, and more requests
// than cores only take turns.
class Gate {
 public:
  explicit Gate(int slots) : free_(slots) {}
  void Enter() {
    MutexLock lock(mutex_);
    changed_.Wait(mutex_, [this] { return free_ > 0; });
    --free_;
  }
  void Leave() {
    MutexLock lock(mutex_);
    ++free_;
    changed_.NotifyOne();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int free_ ABSL_GUARDED_BY(mutex_);
};

class Entered {
 public:
  explicit Entered(Gate& gate) : gate_(gate) { gate_.Enter(); }
  ~Entered() { gate_.Leave(); }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

 private:
  Gate& gate_;
};

class CpuStream : public Stream {};

class CpuDevice : public Device {
 public:
  explicit CpuDevice(int threads)
      : description_(Describe(threads)),
        usage_(std::make_shared<Usage>()),
        gate_(std::max(16, threads)),
        pool_(threads) {
    UseOneBlasThread();
  }

  const DeviceDescription& description() const override { return description_; }
  absl::Status health() const override { return absl::OkStatus(); }
  uint64_t weights_bytes() const override { return usage_->weights; }

  absl::StatusOr<std::shared_ptr<DeviceLayer>> LoadLayer(StandardTensor tensor) override {
    // 16 rows of x and 8 of the weights lie in memory as doubles: 1 GiB and more per thread.
    constexpr int64_t kLargest = int64_t{1} << 22;
    if (tensor.shape.k > kLargest) {
      return Error(absl::StatusCode::kUnimplemented, "NO_KERNEL",
                   absl::StrCat("k ", tensor.shape.k, " is beyond ", kLargest));
    }
    GEMMD_RETURN_IF_ERROR(CheckFits(static_cast<uint64_t>(tensor.total_bytes())));
    return std::make_shared<CpuLayer>(std::move(tensor), usage_);
  }

  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override {
    return std::make_unique<CpuStream>();
  }

  absl::StatusOr<std::unique_ptr<Memory>> OpenCudaIpc(absl::Span<const std::byte>,
                                                      uint64_t) override {
    return Error(absl::StatusCode::kUnimplemented, "NOT_IPC_CAPABLE",
                 "the CPU device has no CUDA memory: pass a memfd or let the daemon allocate");
  }

  absl::StatusOr<std::unique_ptr<Memory>> OpenFd(int fd, uint64_t size) override {
    return MapMemfd(fd, size);
  }

  absl::StatusOr<std::unique_ptr<Memory>> Allocate(uint64_t size) override {
    GEMMD_RETURN_IF_ERROR(CheckFits(size));
    GEMMD_ASSIGN_OR_RETURN(std::unique_ptr<Memory> memory, AllocateHostMemory(size));
    return std::make_unique<CountedMemory>(std::move(memory), usage_);
  }

  absl::Status CopyIn(uintptr_t address, absl::Span<const std::byte> from) override {
    if (!from.empty()) std::memcpy(reinterpret_cast<void*>(address), from.data(), from.size());
    return absl::OkStatus();
  }
  absl::Status CopyOut(uintptr_t address, absl::Span<std::byte> to) override {
    if (!to.empty()) std::memcpy(to.data(), reinterpret_cast<const void*>(address), to.size());
    return absl::OkStatus();
  }

  absl::StatusOr<CallReport> RunGemm(Stream&, const GemmCall& call) override {
    GEMMD_RETURN_IF_ERROR(ValidateCall(call));
    const Entered entered(gate_);
    GEMMD_RETURN_IF_ERROR(RunCpuGemm(pool_, TensorOf(*call.layer), call));
    const StandardTensor& tensor = TensorOf(*call.layer);
    CallReport report = ReportFor(WantedActivation(tensor),
                                  QuantizesX(tensor, call.x.type) ? tensor.spec.activation : call.x.type,
                                  call.batch_invariant ? Order::kRowByRow : Order::kMatrix,
                                  WhyNotQuantized(tensor));
    report.hadamard_block = call.hadamard_block;
    return report;
  }

  absl::StatusOr<MoeReport> RunMoe(Stream&, const MoeCall& call) override {
    GEMMD_RETURN_IF_ERROR(ValidateCall(call));
    const Entered entered(gate_);
    GEMMD_RETURN_IF_ERROR(RunCpuMoe(pool_, TensorOf(*call.gate_up), TensorOf(*call.down), call));
    const auto report = [&](const DeviceLayer& layer) {
      return ReportFor(WantedActivation(TensorOf(layer)), call.x.type, Order::kMatrix,
                       "mixtures of experts do not quantize activations");
    };
    return MoeReport{report(*call.gate_up), report(*call.down)};
  }

  absl::StatusOr<KernelExplanation> Explain(const DeviceLayer& layer, int64_t m) override {
    const auto& [experts, n, k] = layer.shape();
    KernelExplanation explanation;
    explanation.m = m;
    explanation.choice.kernel = "cpu_dgemm";
    explanation.choice.reason = "the CPU device uses x in the type the request gives";
    if (QuantizesX(TensorOf(layer), kFloat32)) {
      explanation.choice.activation_used = layer.spec().activation;
      explanation.choice.reason = "the CPU device quantizes x of 16 and 32 bits, and uses other x as it is";
    } else if (WantedActivation(TensorOf(layer)).present()) {
      absl::StrAppend(&explanation.choice.reason, ": ", WhyNotQuantized(TensorOf(layer)));
    }
    explanation.config = {{"arithmetic", "double precision, rounded once"},
                          {"weight_block_rows", absl::StrCat(WeightBlockRows(n, k))},
                          {"threads", absl::StrCat(pool_.threads())},
                          {"batch_invariant", "cpu_dgemv, one row at a time"}};
    return explanation;
  }

 private:
  static const StandardTensor& TensorOf(const DeviceLayer& layer) {
    return static_cast<const CpuLayer&>(layer).tensor();
  }

  absl::Status CheckFits(uint64_t bytes) const {
    const uint64_t held = usage_->held();
    const uint64_t free = description_.memory_bytes - std::min(held, description_.memory_bytes);
    if (bytes <= free) return absl::OkStatus();
    return Error(absl::StatusCode::kResourceExhausted, "GPU_OOM",
                 absl::StrCat(bytes, " bytes do not fit: ", free, " of ", description_.memory_bytes,
                              " bytes are free on the CPU device"));
  }

  const DeviceDescription description_;
  const std::shared_ptr<Usage> usage_;
  Gate gate_;
  ThreadPool pool_;
};

}  // namespace

std::unique_ptr<Device> CreateCpuDevice(const CpuDeviceOptions& options) {
  return std::make_unique<CpuDevice>(options.threads > 0 ? options.threads : CoresOfThisProcess());
}

}  // namespace gemmd
