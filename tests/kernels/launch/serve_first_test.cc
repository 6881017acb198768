// A layer on a CUDA device (fake driver) from its registration to its specialised kernels, and a
// self-test that costs the context.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/exec/cuda_device.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status.h"
#include "kernels/contract/gemm_args.h"
#include "kernels/jit/kernel_cache.h"
#include "kernels/kernel_store.h"
#include "tests/kernels/device_runner.h"
#include "tests/kernels/fake_compiler.h"
#include "tests/support/fake_driver.h"

namespace gemmd::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ServeFirstTest : public ::testing::Test {
 protected:
  ServeFirstTest() {
    cuda::SetDriverForTesting(&fake_.table());
    store_ = *KernelStore::Open({.compile_helper = FakeCompiler::Helper()});
  }
  ~ServeFirstTest() override {
    store_->Close();
    device_.reset();
    cuda::SetDriverForTesting(nullptr);
  }
  void Open(bool self_test = false) {
    CudaDeviceOptions options{.cache = store_->cache(), .serve_first = true};
    options.self_test = self_test;
    options.on_kernel = [this](const KernelNotice& notice) {
      MutexLock lock(mutex_);
      notices_.push_back(notice);
    };
    device_ = std::move((*CreateCudaDevices(options))[0]);
  }
  std::vector<KernelNotice> Notices() {
    MutexLock lock(mutex_);
    return notices_;
  }
  StandardTensor Tensor() {
    QuantSpec spec;
    spec.weight = IntegerFormat(4);
    spec.scale = kFloat32;  // both types of x have as many kernels
    spec.scale_block_k = 128;
    return RandomTensor(spec, {1, 200, 300}, random_);
  }
  // The kernel that serves a request.
  std::string Run(DeviceRunner& runner, const std::shared_ptr<DeviceLayer>& layer,
                  const NumberFormat& type, bool batch_invariant = false) {
    const DeviceMatrix x = runner.Upload(RandomMatrix(type, 5, 300, random_));
    const DeviceMatrix y = runner.Upload(PoisonedMatrix(type, 5, 200));
    GemmCall call;
    call.layer = layer;
    call.x = x.view;
    call.y = y.view;
    call.batch_invariant = batch_invariant;
    const auto report = device_->RunGemm(runner.stream(), call);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? report->kernel : "";
  }

  // A batch-invariant request and its memory.
  struct InvariantCall {
    DeviceMatrix x;
    DeviceMatrix y;
    GemmCall call;
  };
  static InvariantCall MakeInvariant(DeviceRunner& runner, const std::shared_ptr<DeviceLayer>& layer,
                                     int64_t m, uint64_t numerics = 0) {
    Random random(static_cast<uint64_t>(m));
    InvariantCall made{runner.Upload(RandomMatrix(kBFloat16, m, 300, random)),
                       runner.Upload(PoisonedMatrix(kBFloat16, m, 200)),
                       {}};
    made.call.layer = layer;
    made.call.x = made.x.view;
    made.call.y = made.y.view;
    made.call.batch_invariant = true;
    made.call.numerics = numerics;
    return made;
  }
  CallReport RunInvariant(DeviceRunner& runner, const std::shared_ptr<DeviceLayer>& layer, int64_t m,
                          uint64_t numerics = 0) {
    const auto report =
        device_->RunGemm(runner.stream(), MakeInvariant(runner, layer, m, numerics).call);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.value_or(CallReport());
  }
  std::string ConfigOf(const DeviceLayer& layer, const std::string& field, int64_t m = 5) {
    const KernelExplanation explanation = *device_->Explain(layer, m);
    for (const auto& [name, value] : explanation.config) {
      if (name == field) return value;
    }
    return "";
  }

  FakeCompiler compiler_;
  cuda::FakeDriver fake_;
  std::shared_ptr<KernelStore> store_;
  Mutex mutex_;
  std::vector<KernelNotice> notices_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Device> device_;
  Random random_{5};
};

TEST_F(ServeFirstTest, RequestsAreServedAtOnceAndFasterAfterwards) {
  Open();
  compiler_.Hold("gemm_sm90.cuh");
  DeviceRunner runner(*device_);
  const auto layer = runner.Load(Tensor());
  ASSERT_NE(layer, nullptr);
  const int total = layer->specialised().total;
  EXPECT_GT(total, 2);
  EXPECT_EQ(layer->specialised().ready, 0);
  EXPECT_THAT(Run(runner, layer, kBFloat16), HasSubstr("gemm_tf32"));
  auto explanation = *device_->Explain(*layer, 5);
  EXPECT_THAT(explanation.choice.kernel, HasSubstr("gemm_tf32"));
  EXPECT_THAT(explanation.choice.reason,
              HasSubstr("for bfloat16 or float16 x without scales per group of columns"));
  EXPECT_THAT(explanation.choice.reason,
              HasSubstr(absl::StrCat("0 of ", total, " ready, ", total / 2, " compile, ", total / 2,
                                     " wait for the first request")));
  const std::string generic = Run(runner, layer, kBFloat16, /*batch_invariant=*/true);

  compiler_.Release();
  ASSERT_TRUE(Eventually([&] { return layer->specialised().ready == total / 2; }));
  EXPECT_THAT(Run(runner, layer, kBFloat16), HasSubstr("gemm_sm90_bf16"));
  EXPECT_EQ(Run(runner, layer, kBFloat16, /*batch_invariant=*/true), generic);
  explanation = *device_->Explain(*layer, 5);
  EXPECT_THAT(explanation.choice.kernel, HasSubstr("gemm_sm90_bf16"));
  compiler_.Hold("gemm_sm90.cuh");
  EXPECT_THAT(Run(runner, layer, kFloat16), HasSubstr("gemm_tf32"));
  compiler_.Release();
  ASSERT_TRUE(Eventually([&] { return layer->specialised().ready == total; }));
  EXPECT_THAT(Run(runner, layer, kFloat16), HasSubstr("gemm_sm90_f16"));
  ASSERT_TRUE(Eventually([&] { return Notices().size() == size_t(total); }));
  EXPECT_EQ(Notices()[0].device, device_->description().id);
  EXPECT_EQ(device_->kernel_counts().specialised, total);
}

// `explain` shows them where they serve, and a request that permits them gets them once they are there.
TEST_F(ServeFirstTest, SumsOfFloat16AreForRequestsThatPermitThem) {
  Open();
  DeviceRunner runner(*device_);
  QuantSpec spec;
  spec.weight = IntegerFormat(4);
  spec.scale = kFloat16;
  const auto layer = runner.Load(RandomTensor(spec, {1, 2120, 1152}, random_));
  ASSERT_NE(layer, nullptr);
  constexpr int64_t kRows = 2049;
  EXPECT_EQ(ConfigOf(*layer, "fp16_accumulation"), "") << "small tiles have none";
  EXPECT_THAT(ConfigOf(*layer, "fp16_accumulation", kRows), HasSubstr("_f16sums for float16 x, compiled once"));
  const DeviceMatrix x = runner.Upload(RandomMatrix(kFloat16, kRows, 1152, random_));
  const DeviceMatrix y = runner.Upload(PoisonedMatrix(kFloat16, kRows, 2120));
  GemmCall call;
  call.layer = layer;
  call.x = x.view;
  call.y = y.view;
  const auto kernel = [&](bool permits) {
    call.fp16_accumulation = permits;
    const auto report = device_->RunGemm(runner.stream(), call);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? report->kernel : "";
  };
  ASSERT_TRUE(Eventually([&] { return kernel(true).find("_f16sums") != std::string::npos; }));
  EXPECT_THAT(kernel(false), Not(HasSubstr("_f16sums")));
  EXPECT_THAT(ConfigOf(*layer, "fp16_accumulation", kRows), HasSubstr("_f16sums for float16 x"));
  EXPECT_THAT(ConfigOf(*layer, "fp16_accumulation", kRows), Not(HasSubstr("compiled once")));
}

// The whole way of a client that wants batch invariance: served at once, told of a kernel, swaps itself.
TEST_F(ServeFirstTest, BatchInvariantNumbersChangeWhereTheRequestSaysSo) {
  Open();
  compiler_.Hold("gemm_sm90.cuh");
  DeviceRunner runner(*device_);
  const auto layer = runner.Load(Tensor());
  ASSERT_NE(layer, nullptr);
  const CallReport first = RunInvariant(runner, layer, 5);
  EXPECT_THAT(first.kernel, HasSubstr("gemm_tf32"));
  EXPECT_EQ(first.armed_numerics, 0u);
  ASSERT_EQ(layer->numerics().size(), 1u);
  EXPECT_EQ(layer->numerics()[0].id, first.numerics);
  EXPECT_THAT(ConfigOf(*layer, "batch_invariant"), HasSubstr("once it is there and is named"));

  compiler_.Release();
  ASSERT_TRUE(Eventually([&] { return layer->numerics().size() == 2; }));
  const KernelNumerics armed = layer->numerics()[1];
  EXPECT_EQ(armed.x, kBFloat16);
  EXPECT_THAT(ConfigOf(*layer, "batch_invariant"),
              HasSubstr(absl::StrCat(absl::Hex(armed.id, absl::kZeroPad16))));
  for (const int64_t m : {0, 1, 33, 300}) {
    const CallReport unnamed = RunInvariant(runner, layer, m);
    EXPECT_EQ(unnamed.numerics, first.numerics) << "M " << m;
    EXPECT_EQ(unnamed.kernel, first.kernel);
    EXPECT_EQ(unnamed.armed_numerics, armed.id);
    const CallReport named = RunInvariant(runner, layer, m, armed.id);
    EXPECT_EQ(named.numerics, armed.id) << "M " << m;
    EXPECT_EQ(named.kernel, armed.kernel);
    EXPECT_EQ(named.armed_numerics, 0u);
  }
  std::vector<KernelNumerics> told;
  ASSERT_TRUE(Eventually([&] {
    told.clear();
    for (const KernelNotice& notice : Notices()) {
      told.insert(told.end(), notice.armed.begin(), notice.armed.end());
    }
    return !told.empty();
  }));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].id, armed.id);
  EXPECT_EQ(told[0].kernel, armed.kernel);
}

// Above what a grid counts there are several launches of the same kernel, never another one.
TEST_F(ServeFirstTest, BatchInvariantKernelTakesMoreRowsThanAGridCounts) {
  Open();
  DeviceRunner runner(*device_);
  const auto layer = runner.Load(Tensor());
  ASSERT_TRUE(Eventually([&] { return layer->numerics().size() == 2; }));
  const uint64_t id = layer->numerics()[1].id;
  InvariantCall made = MakeInvariant(runner, layer, 1, id);
  GemmCall& call = made.call;
  constexpr int64_t kRows = int64_t{65535} * 32 + 1;
  call.x.rows = call.y.rows = kRows;
  call.x.address = uintptr_t{1} << 40;  // the fake driver reads nothing
  call.y.address = uintptr_t{2} << 40;
  std::vector<int64_t> launched;
  fake_.OnLaunch([&](const cuda::FakeLaunch& launch) {
    launched.push_back(static_cast<const GemmArgs*>(launch.params[0])->m);
    return CUDA_SUCCESS;
  });
  const auto report = device_->RunGemm(runner.stream(), call);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->numerics, id);
  EXPECT_THAT(launched, ::testing::ElementsAre(kRows - 1, 1));
}

TEST_F(ServeFirstTest, NumericsThatAreNotThereAreRefusedNotReplaced) {
  Open();
  compiler_.Hold("gemm_sm90.cuh");
  DeviceRunner runner(*device_);
  const auto layer = runner.Load(Tensor());
  InvariantCall made = MakeInvariant(runner, layer, 5, 7);
  GemmCall& call = made.call;
  const absl::Status refused = device_->RunGemm(runner.stream(), call).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ReasonOf(refused), "NUMERICS_NOT_READY");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("0000000000000007"));
  compiler_.Release();
  ASSERT_TRUE(Eventually([&] { return layer->numerics().size() == 2; }));
  call.numerics = layer->numerics()[1].id;
  EXPECT_TRUE(device_->RunGemm(runner.stream(), call).ok());
  call.x.type = kFloat16;
  EXPECT_EQ(ReasonOf(device_->RunGemm(runner.stream(), call).status()), "NUMERICS_NOT_READY")
      << "a kernel for other x";
}

TEST_F(ServeFirstTest, FailureIsTold) {
  Open();
  compiler_.Reject("kTokens = 8;");
  DeviceRunner runner(*device_);
  const auto layer = runner.Load(Tensor());
  ASSERT_NE(layer, nullptr);
  ASSERT_TRUE(Eventually([&] { return layer->specialised().failed == 1; }));
  EXPECT_THAT(device_->Explain(*layer, 5)->choice.reason, HasSubstr("1 failed: "));
  ASSERT_TRUE(Eventually([&] { return device_->kernel_counts().specialised_failed == 1; }));
  EXPECT_THAT(Run(runner, layer, kBFloat16), HasSubstr("gemm_tf32"));
}

TEST_F(ServeFirstTest, LayerMayGoWhileItsKernelsCompile) {
  Open();
  compiler_.Hold("gemm_sm90.cuh");
  DeviceRunner runner(*device_);
  auto layer = runner.Load(Tensor());
  ASSERT_NE(layer, nullptr);
  const absl::Time start = absl::Now();
  layer.reset();
  EXPECT_LT(absl::Now() - start, absl::Seconds(1));
  EXPECT_EQ(device_->weights_bytes(), 0u);
  EXPECT_TRUE(Eventually([&] { return store_->cache()->stats().running == 0; }));
}

TEST_F(ServeFirstTest, LayersOutliveADeviceWhoseKernelsCompile) {
  Open();
  compiler_.Hold("gemm_sm90.cuh");
  std::shared_ptr<DeviceLayer> layer;
  {
    DeviceRunner runner(*device_);
    layer = runner.Load(Tensor());
  }
  device_.reset();
  layer.reset();
  EXPECT_EQ(fake_.Live(), "");
}

TEST_F(ServeFirstTest, WeightsThatCannotBePackedAreServedByTheGenericKernel) {
  Open();
  QuantSpec spec;
  spec.weight = kFloat8E4M3;
  spec.scale = kFloat32;
  spec.scale_block_k = 128;
  StandardTensor tensor = RandomTensor(spec, {1, 200, 300}, random_);
  DeviceRunner runner(*device_);
  const auto packed = runner.Load(tensor);
  EXPECT_GT(packed->specialised().total, 0);
  tensor.codes[77] = std::byte{0x7f};  // NaN
  const auto layer = runner.Load(tensor);
  ASSERT_NE(layer, nullptr);
  EXPECT_EQ(layer->specialised().total, 0);
  EXPECT_THAT(Run(runner, layer, kBFloat16), HasSubstr("gemm_tf32"));
  EXPECT_THAT(device_->Explain(*layer, 5)->choice.reason, HasSubstr("no number"));
}

// Nothing computes here, so every GEMM kernel is wrong; the first that is tested is the layer's generic
// one. A kernel that faults costs the device, but the next process knows better.
TEST_F(ServeFirstTest, KernelThatFaultsInItsSelfTestEndsTheDeviceOnce) {
  store_->Close();
  store_ = *KernelStore::Open(
      {.directory = compiler_.cache_directory(), .compile_helper = FakeCompiler::Helper()});
  Open(/*self_test=*/true);
  EXPECT_EQ(ReasonOf(device_->LoadLayer(Tensor()).status()), "KERNEL_QUARANTINED");
  EXPECT_TRUE(device_->health().ok()) << "a wrong result is no fault of the device";
  ASSERT_EQ(Notices().size(), 1u);
  EXPECT_EQ(Notices()[0].kind, KernelNotice::Kind::kQuarantined);
  EXPECT_EQ(device_->kernel_counts().quarantined, 1u);

  ASSERT_TRUE(store_->Purge({}).ok());
  fake_.Fail("cuStreamQuery", CUDA_ERROR_ILLEGAL_ADDRESS);
  const absl::Status lost = device_->LoadLayer(Tensor()).status();
  EXPECT_EQ(lost.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReasonOf(device_->health()), "CONTEXT_LOST");
  device_.reset();
  fake_.ClearFailures();
  Open(/*self_test=*/true);
  EXPECT_EQ(ReasonOf(device_->LoadLayer(Tensor()).status()), "KERNEL_QUARANTINED");
  EXPECT_TRUE(device_->health().ok());
}

}  // namespace
}  // namespace gemmd::testing
