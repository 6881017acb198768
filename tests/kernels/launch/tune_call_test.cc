// Device::Tune of a GPU (fake driver: every launch takes as long). What is measured how: tests/kernels/tune.
#include "core/exec/tune_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "core/exec/cuda_device.h"
#include "kernels/base/status.h"
#include "kernels/kernel_store.h"
#include "tests/kernels/device_runner.h"
#include "tests/kernels/fake_compiler.h"
#include "tests/support/fake_driver.h"

namespace gemmd::testing {
namespace {

using ::testing::HasSubstr;

class TuneCallTest : public ::testing::Test {
 protected:
  TuneCallTest() {
    cuda::SetDriverForTesting(&fake_.table());
    cache_ = *KernelStore::Open({.compile_helper = FakeCompiler::Helper()});
    call_.layers = {{Spec(), {1, 200, 300}}};
    call_.settings.rows = {8};
    call_.settings.candidates = 2;
    call_.settings.samples = 1;
    call_.settings.flush_bytes = 4096;
    call_.progress = [this](const TuneStep& step) {
      steps_.push_back(step);
      return true;
    };
  }
  ~TuneCallTest() override {
    cache_->Close();
    device_.reset();
    cuda::SetDriverForTesting(nullptr);
  }
  void Open(std::shared_ptr<TuningStore> tuning, bool self_test = false) {
    CudaDeviceOptions options{.cache = cache_->cache(), .tuning = std::move(tuning)};
    options.self_test = self_test;
    device_ = std::move((*CreateCudaDevices(options))[0]);
  }
  static QuantSpec Spec() {
    QuantSpec spec;
    spec.weight = IntegerFormat(4);
    spec.scale = kFloat32;
    spec.scale_block_k = 128;
    return spec;
  }

  FakeCompiler compiler_;
  cuda::FakeDriver fake_;
  std::shared_ptr<KernelStore> cache_;
  std::unique_ptr<Device> device_;
  TuneCall call_;
  std::vector<TuneStep> steps_;
};

TEST_F(TuneCallTest, MeasuresForItsOwnKindOfGpuAndExplainsIt) {
  const auto store = TuningStore::Open({.built_in = "{\"schema\": 1, \"entries\": []}"});
  Open(store);
  ASSERT_TRUE(device_->Tune(call_).ok());
  ASSERT_EQ(steps_.size(), 1u);
  EXPECT_EQ(steps_[0].outcome, TuneOutcome::kMeasured) << steps_[0].message;
  ASSERT_EQ(store->List().size(), 1u);
  const DeviceClass expected = {"Fake GPU", 132, 1980};
  EXPECT_TRUE(store->List()[0].entry.key.device == expected);
  Random random(5);
  DeviceRunner runner(*device_);
  const auto layer = runner.Load(RandomTensor(Spec(), {1, 200, 300}, random));
  ASSERT_NE(layer, nullptr);
  const auto explanation = device_->Explain(*layer, 8);
  ASSERT_TRUE(explanation.ok()) << explanation.status();
  std::map<std::string, std::string> fields(explanation->config.begin(), explanation->config.end());
  EXPECT_EQ(fields["rows"], "2 to 8");
  EXPECT_THAT(fields["chosen_by"], HasSubstr("measured 0.00 us at M = 8"));
}

TEST_F(TuneCallTest, WithoutAStoreThereIsNoTuning) {
  Open(nullptr);
  EXPECT_EQ(ReasonOf(device_->Tune(call_)), "NOT_TUNABLE");
}

TEST_F(TuneCallTest, ALostContextEndsTheDevice) {
  Open(TuningStore::Open({}), /*self_test=*/true);
  fake_.Fail("cuStreamQuery", CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(ReasonOf(device_->Tune(call_)), "CONTEXT_LOST");
  EXPECT_EQ(ReasonOf(device_->health()), "CONTEXT_LOST");
}

}  // namespace
}  // namespace gemmd::testing
