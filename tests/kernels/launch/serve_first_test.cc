// A layer on a CUDA device (fake driver) from its registration to its specialised kernels, and a
// self-test that costs the context.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/exec/cuda_device.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status.h"
#include "kernels/jit/kernel_cache.h"
#include "kernels/kernel_store.h"
#include "tests/kernels/device_runner.h"
#include "tests/kernels/fake_compiler.h"
#include "tests/support/fake_driver.h"

namespace gemmd::testing {
namespace {

using ::testing::HasSubstr;

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
