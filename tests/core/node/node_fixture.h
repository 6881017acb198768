// What    A node on fake devices, with clients in one line.
#ifndef GEMMD_TESTS_CORE_NODE_NODE_FIXTURE_H_
#define GEMMD_TESTS_CORE_NODE_NODE_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "core/node.h"
#include "kernels/base/status.h"
#include "tests/support/fake_device.h"
#include "tests/support/tensors.h"

namespace gemmd {

// The end of one asynchronous operation.
template <typename T>
class Outcome {
 public:
  void Set(absl::StatusOr<T> value) {
    MutexLock lock(mutex_);
    ++calls_;
    value_ = std::move(value);
    changed_.NotifyAll();
  }
  absl::StatusOr<T> Wait(absl::Duration limit = absl::Seconds(20)) {
    MutexLock lock(mutex_);
    changed_.WaitUntil(mutex_, absl::Now() + limit, [this] { return calls_ > 0; });
    return value_.value_or(absl::UnknownError("no outcome"));
  }
  int calls() {
    MutexLock lock(mutex_);
    return calls_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<absl::StatusOr<T>> value_ ABSL_GUARDED_BY(mutex_);
};

constexpr int64_t kN = 8;
constexpr int64_t kK = 32;

// One client of a node: a session with an x and a y region and, once loaded, a layer.
class Client {
 public:
  explicit Client(Node& node, const std::string& transport = "socket", pid_t pid = 7)
      : node_(node) {
    session_ = node.OpenSession({"client", pid, 1000, transport}).value();
  }

  absl::StatusOr<RegionRef> NewRegion(uint64_t size, const std::string& device = "cuda:fake") {
    const auto info = node_.RegisterRegion(*session_, {device, DaemonSource{size}, "test"});
    if (!info.ok()) return info.status();
    return info->ref;
  }

  absl::StatusOr<RegionRef> NewIpcRegion(const std::string& handle, uint64_t buffer_id) {
    CudaIpcSource source;
    source.handle = handle;
    source.size = 4096;
    source.allocation_size = 8192;
    source.buffer_id = buffer_id;
    const auto info = node_.RegisterRegion(*session_, {"cuda:fake", source, ""});
    if (!info.ok()) return info.status();
    return info->ref;
  }

  // A dense layer of kN x kK from tensors in a region; `seed` decides its content.
  std::shared_ptr<Outcome<LayerInfo>> StartLayer(const std::string& name, uint64_t seed,
                                                 const std::string& device = "cuda:fake") {
    auto outcome = std::make_shared<Outcome<LayerInfo>>();
    const StandardTensor tensor = testing::RandomTensor(testing::Int4Spec(), {1, kN, kK}, seed);
    const uint64_t codes = tensor.codes.size();
    const uint64_t scales = tensor.scales.size();
    const absl::StatusOr<RegionRef> region = NewRegion(codes + scales, device);
    if (!region.ok()) {
      outcome->Set(region.status());
      return outcome;
    }
    std::string bytes(reinterpret_cast<const char*>(tensor.codes.data()), codes);
    bytes.append(reinterpret_cast<const char*>(tensor.scales.data()), scales);
    EXPECT_TRUE(node_.WriteRegion(*session_, *region, 0, bytes).ok());
    TensorSource source;
    source.spec = tensor.spec;
    source.shape = tensor.shape;
    source.codes = RawRef{*region, 0, codes};
    source.scales = RawRef{*region, codes, scales};
    node_.RegisterLayer(
        session_, {device, name, source}, nullptr,
        [outcome](absl::StatusOr<LayerInfo> info) { outcome->Set(std::move(info)); });
    EXPECT_TRUE(node_.UnregisterRegion(*session_, *region).ok());
    return outcome;
  }

  // Registers layer and regions for Gemm.
  void Prepare(const std::string& device = "cuda:fake", uint64_t seed = 1) {
    const auto layer = StartLayer("layer", seed, device)->Wait();
    ASSERT_TRUE(layer.ok()) << layer.status();
    layer_id = layer->layer_id;
    x = NewRegion(4096, device).value();
    y = NewRegion(4096, device).value();
  }

  GemmRequest Request(int64_t m = 1) const {
    GemmRequest request;
    request.layer_id = layer_id;
    request.x.region = x;
    request.x.type = kFloat16;
    request.x.shape = {m, kK};
    request.y.region = y;
    request.y.type = kFloat16;
    request.y.shape = {m, kN};
    return request;
  }

  std::shared_ptr<Outcome<GemmResult>> Start(const GemmRequest& request,
                                             absl::Time deadline = absl::InfiniteFuture(),
                                             std::function<bool()> cancelled = nullptr) {
    auto outcome = std::make_shared<Outcome<GemmResult>>();
    node_.SubmitGemm(
        session_, request, deadline, std::move(cancelled),
        [outcome](absl::StatusOr<GemmResult> result) { outcome->Set(std::move(result)); });
    return outcome;
  }
  absl::Status Gemm(const GemmRequest& request) { return Start(request)->Wait().status(); }
  absl::Status Gemm() { return Gemm(Request()); }

  void End(const std::string& why = "eof") { node_.EndSession(session_, why); }
  const std::shared_ptr<Session>& session() const { return session_; }

  uint64_t layer_id = 0;
  RegionRef x;
  RegionRef y;

 private:
  Node& node_;
  std::shared_ptr<Session> session_;
};

class NodeTest : public ::testing::Test {
 protected:
  ~NodeTest() override {
    gate.Open();
    node.reset();
    EXPECT_EQ(state->opens, state->closes) << "every memory object is closed";
    EXPECT_EQ(state->live_layers, 0);
  }

  void Create(NodeOptions options = {}, NodeObserver* observer = nullptr) {
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(std::make_unique<testing::FakeDevice>(state));
    devices.push_back(std::make_unique<testing::FakeDevice>(state, "cuda:other"));
    node = std::make_unique<Node>(std::move(options), std::move(devices), observer);
  }
  // Runs wait for `gate`.
  void BlockRuns() {
    state->on_run = [this] {
      gate.Wait();
      return absl::OkStatus();
    };
  }
  // Whether `done` becomes true within the two seconds that a session's end may take.
  static bool Soon(const std::function<bool()>& done) {
    const absl::Time deadline = absl::Now() + absl::Seconds(2);
    while (absl::Now() < deadline) {
      if (done()) return true;
      absl::SleepFor(absl::Milliseconds(1));
    }
    return false;
  }
  bool NothingHeld() {
    const NodeStatus status = node->Status();
    return status.regions == 0 && status.layers == 0 && status.closing == 0 &&
           state->opens == state->closes && state->live_layers == 0;
  }

  std::shared_ptr<testing::FakeState> state = std::make_shared<testing::FakeState>();
  testing::Barrier gate;
  std::unique_ptr<Node> node;
};

}  // namespace gemmd

#endif  // GEMMD_TESTS_CORE_NODE_NODE_FIXTURE_H_
