// What    A Device in host memory with hooks where tests make it slow, hang, fail or throw.
// Threads Hooks are set before use; they run on the threads that call the device.
#ifndef GEMMD_TESTS_SUPPORT_FAKE_DEVICE_H_
#define GEMMD_TESTS_SUPPORT_FAKE_DEVICE_H_

#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/exec/device.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status.h"

namespace gemmd::testing {

// Closed until Open; Wait blocks while closed.
class Barrier {
 public:
  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  void Wait() {
    MutexLock lock(mutex_);
    ++arrived_;
    changed_.NotifyAll();
    changed_.Wait(mutex_, [this] { return open_; });
  }
  // Until `count` threads have come to Wait.
  void WaitForArrivals(int count) {
    MutexLock lock(mutex_);
    changed_.Wait(mutex_, [&] { return arrived_ >= count; });
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = false;
  int arrived_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Counters and hooks; outlives the device, so that tests can look after the node is gone.
struct FakeState {
  std::atomic<int> opens{0};
  std::atomic<int> closes{0};
  std::atomic<int> loads{0};
  std::atomic<int> live_layers{0};
  std::atomic<int> runs{0};
  std::function<absl::Status()> on_run;  // before the result of a Run
  std::function<absl::Status()> on_load;
  std::function<absl::Status()> on_open;
  std::function<void()> on_close;
  // What layers answer; may grow while they live.
  Mutex mutex;
  std::vector<KernelNumerics> numerics ABSL_GUARDED_BY(mutex);
};

class FakeMemory : public Memory {
 public:
  FakeMemory(std::shared_ptr<FakeState> state, uint64_t size, const char* kind)
      : state_(std::move(state)), bytes_(static_cast<size_t>(size)), kind_(kind) {
    ++state_->opens;
  }
  ~FakeMemory() override {
    if (state_->on_close) state_->on_close();
    ++state_->closes;
  }
  uintptr_t address() const override { return reinterpret_cast<uintptr_t>(bytes_.data()); }
  uint64_t size() const override { return bytes_.size(); }
  const char* kind() const override { return kind_; }

 private:
  const std::shared_ptr<FakeState> state_;
  std::vector<std::byte> bytes_;
  const char* const kind_;
};

class FakeLayer : public DeviceLayer {
 public:
  FakeLayer(std::shared_ptr<FakeState> state, const StandardTensor& tensor)
      : state_(std::move(state)), spec_(tensor.spec), shape_(tensor.shape) {
    ++state_->live_layers;
  }
  ~FakeLayer() override { --state_->live_layers; }
  const QuantSpec& spec() const override { return spec_; }
  const LayerShape& shape() const override { return shape_; }
  bool gate_up_interleaved() const override { return false; }
  uint64_t bytes() const override { return 1000; }
  std::vector<KernelNumerics> numerics() const override {
    MutexLock lock(state_->mutex);
    return state_->numerics;
  }

 private:
  const std::shared_ptr<FakeState> state_;
  const QuantSpec spec_;
  const LayerShape shape_;
};

class FakeStream : public Stream {};

class FakeDevice : public Device {
 public:
  explicit FakeDevice(std::shared_ptr<FakeState> state, std::string id = "cuda:fake")
      : state_(std::move(state)) {
    description_.id = std::move(id);
    description_.kind = DeviceKind::kCuda;
  }

  const DeviceDescription& description() const override { return description_; }
  absl::Status health() const override { return absl::OkStatus(); }
  uint64_t weights_bytes() const override {
    return 1000 * static_cast<uint64_t>(state_->live_layers.load());
  }

  absl::StatusOr<std::shared_ptr<DeviceLayer>> LoadLayer(StandardTensor tensor) override {
    ++state_->loads;
    if (state_->on_load) GEMMD_RETURN_IF_ERROR(state_->on_load());
    return std::make_shared<FakeLayer>(state_, tensor);
  }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override {
    return std::make_unique<FakeStream>();
  }
  absl::StatusOr<std::unique_ptr<Memory>> OpenCudaIpc(absl::Span<const std::byte>,
                                                      uint64_t allocation_size) override {
    return Open(allocation_size, "cuda_ipc");
  }
  absl::StatusOr<std::unique_ptr<Memory>> OpenFd(int, uint64_t size) override {
    return Open(size, "vmm");
  }
  absl::StatusOr<std::unique_ptr<Memory>> Allocate(uint64_t size) override {
    return Open(size, "daemon");
  }
  absl::Status CopyIn(uintptr_t address, absl::Span<const std::byte> from) override {
    std::memcpy(reinterpret_cast<void*>(address), from.data(), from.size());
    return absl::OkStatus();
  }
  absl::Status CopyOut(uintptr_t address, absl::Span<std::byte> to) override {
    std::memcpy(to.data(), reinterpret_cast<const void*>(address), to.size());
    return absl::OkStatus();
  }
  absl::StatusOr<CallReport> RunGemm(Stream&, const GemmCall& call) override {
    ++state_->runs;
    if (state_->on_run) GEMMD_RETURN_IF_ERROR(state_->on_run());
    CallReport report{"fake", call.x.type, ""};
    const std::vector<KernelNumerics> known = call.layer->numerics();
    if (!known.empty()) report.numerics = call.numerics != 0 ? call.numerics : known.front().id;
    return report;
  }
  absl::StatusOr<MoeReport> RunMoe(Stream&, const MoeCall& call) override {
    ++state_->runs;
    if (state_->on_run) GEMMD_RETURN_IF_ERROR(state_->on_run());
    const CallReport report{"fake", call.x.type, ""};
    return MoeReport{report, report};
  }
  absl::StatusOr<KernelExplanation> Explain(const DeviceLayer&, int64_t m) override {
    KernelExplanation explanation;
    explanation.m = m;
    return explanation;
  }

 private:
  absl::StatusOr<std::unique_ptr<Memory>> Open(uint64_t size, const char* kind) {
    if (state_->on_open) GEMMD_RETURN_IF_ERROR(state_->on_open());
    return std::make_unique<FakeMemory>(state_, size, kind);
  }

  const std::shared_ptr<FakeState> state_;
  DeviceDescription description_;
};

}  // namespace gemmd::testing

#endif  // GEMMD_TESTS_SUPPORT_FAKE_DEVICE_H_
