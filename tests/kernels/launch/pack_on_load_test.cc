// Layers whose weights the GPU packs when they are loaded, on the fake driver with the kernel's own parts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/exec/cuda_device.h"
#include "core/exec/cuda_layer.h"
#include "kernels/base/status.h"
#include "kernels/kernel_store.h"
#include "kernels/pack/pack_weights.h"
#include "kernels/select/sm90_config.h"
#include "tests/kernels/device_runner.h"
#include "tests/kernels/fake_compiler.h"
#include "tests/kernels/launch/fake_kernels.h"
#include "tests/support/fake_driver.h"

namespace gemmd::testing {
namespace {

using ::testing::HasSubstr;

class PackOnLoadTest : public ::testing::Test {
 protected:
  PackOnLoadTest() {
    cuda::SetDriverForTesting(&fake_.table());
    fake_.OnLaunch([this](const cuda::FakeLaunch& launch) {
      packed_ += RunFakePack(launch) ? 1 : 0;
      return CUDA_SUCCESS;
    });
    store_ = *KernelStore::Open({.compile_helper = FakeCompiler::Helper()});
    CudaDeviceOptions options{.cache = store_->cache(), .serve_first = true};
    options.self_test = false;
    device_ = std::move((*CreateCudaDevices(options))[0]);
  }
  ~PackOnLoadTest() override {
    Close();
    cuda::SetDriverForTesting(nullptr);
  }
  void Close() {
    store_->Close();
    device_.reset();
  }

  StandardTensor Tensor(const NumberFormat& weight, const NumberFormat& scale, int64_t group,
                        const LayerShape& shape = {1, 200, 652}) {
    QuantSpec spec;
    spec.weight = weight;
    spec.scale = scale;
    spec.scale_block_k = group;
    return RandomTensor(spec, shape, random_);
  }
  std::shared_ptr<const CudaLayer> Load(const StandardTensor& tensor) {
    const auto layer = device_->LoadLayer(tensor);
    EXPECT_TRUE(layer.ok()) << layer.status();
    return layer.ok() ? std::dynamic_pointer_cast<const CudaLayer>(*layer) : nullptr;
  }
  // What the host makes of the same weights.
  static void ExpectPacked(const CudaLayer& layer, const StandardTensor& tensor) {
    const auto want =
        PackWeights(tensor.spec, tensor.shape,
                    {tensor.codes, tensor.scales, tensor.zero_points, tensor.secondary_scales});
    ASSERT_TRUE(want.ok()) << want.status();
    ASSERT_NE(layer.weights().packed, nullptr);
    EXPECT_EQ(layer.weights().codes, nullptr);
    EXPECT_EQ(std::memcmp(layer.weights().packed, want->units.data(), want->units.size()), 0);
    if (want->channel_factor.empty()) {
      EXPECT_EQ(layer.weights().channel_factor, nullptr);
    } else {
      EXPECT_EQ(std::memcmp(layer.weights().channel_factor, want->channel_factor.data(),
                            want->channel_factor.size()),
                0);
    }
  }

  FakeCompiler compiler_;
  cuda::FakeDriver fake_;
  std::shared_ptr<KernelStore> store_;
  std::unique_ptr<Device> device_;
  std::atomic<int> packed_{0};
  Random random_{11};
};

TEST_F(PackOnLoadTest, TheGpuHasWhatTheHostWouldPack) {
  std::vector<StandardTensor> tensors = {
      Tensor(IntegerFormat(4), kFloat16, 128), Tensor(IntegerFormat(3), kFloat32, 64),
      Tensor(IntegerFormat(8), kBFloat16, 0),  Tensor(kFloat4E2M1, kFloat8E8M0, 32),
      Tensor(kFloat4E2M1, kFloat8E4M3, 16),    Tensor(kBFloat16, kNoFormat, 0)};
  for (const StandardTensor& tensor : tensors) {
    const auto layer = Load(tensor);
    ASSERT_NE(layer, nullptr);
    ExpectPacked(*layer, tensor);
  }
  EXPECT_EQ(packed_, static_cast<int>(tensors.size()));
}

TEST_F(PackOnLoadTest, LargeLayersArePackedInSlices) {
  constexpr int64_t kN = 2112;
  constexpr int64_t kK = 8448;
  StandardTensor tensor;
  tensor.spec.weight = tensor.spec.activation = kFloat8E4M3;
  tensor.spec.scale = kFloat32;
  tensor.spec.scale_block_k = 128;
  tensor.shape = {1, kN, kK};
  tensor.scale_columns = kK / 128;
  tensor.codes.resize(kN * kK);
  for (size_t i = 0; i < tensor.codes.size(); ++i) {
    tensor.codes[i] = static_cast<std::byte>(i * 37 + i / 512);
  }
  tensor.scales.resize(kN * kK / 128 * sizeof(float));
  for (int64_t i = 0; i < kN * kK / 128; ++i) {
    SetValue<float>(tensor.scales, i, 1 + static_cast<float>(i) / 1024);
  }
  const auto layer = Load(tensor);
  ASSERT_NE(layer, nullptr);
  ExpectPacked(*layer, tensor);
  EXPECT_EQ(packed_, 2) << "16 MiB at a time";
  EXPECT_LT(layer->bytes(), tensor.codes.size() * 12 / 10) << "the GPU has the codes once";
}

// Giving memory of the GPU back waits for the requests that run.
TEST_F(PackOnLoadTest, LoadingGivesNoMemoryBack) {
  const StandardTensor tensor = Tensor(IntegerFormat(4), kFloat16, 128);
  const auto first = Load(tensor);
  const auto second = Load(tensor);
  EXPECT_EQ(fake_.Calls("cuMemFree"), 0);
  EXPECT_EQ(fake_.Calls("cuMemAlloc"), 1);
}

TEST_F(PackOnLoadTest, CopiesOfWeightsLeaveTheLegacyStreamAlone) {
  ASSERT_NE(Load(Tensor(IntegerFormat(4), kFloat16, 128)), nullptr);
  EXPECT_EQ(fake_.Calls("cuMemcpyHtoD"), 0);
}

TEST_F(PackOnLoadTest, WeightsThatAreNoNumberStayAsTheyAre) {
  StandardTensor tensor = Tensor(kFloat8E4M3, kFloat32, 0);
  tensor.codes[77] = std::byte{0xff};
  const auto layer = Load(tensor);
  ASSERT_NE(layer, nullptr);
  EXPECT_EQ(packed_, 0);
  EXPECT_EQ(layer->weights().packed, nullptr);
  EXPECT_EQ(std::memcmp(layer->weights().codes, tensor.codes.data(), tensor.codes.size()), 0);
  EXPECT_TRUE(layer->plan()->packed.empty());
  EXPECT_THAT(device_->Explain(*layer, 1)->choice.reason,
              HasSubstr("does not take weights that are infinite or no number"));
}

TEST_F(PackOnLoadTest, EveryFailureIsToldAndLeavesNothingBehind) {
  compiler_.Hold("gemm_sm90");  // no other thread calls the driver meanwhile
  const StandardTensor tensor = Tensor(IntegerFormat(4), kFloat16, 128);
  ASSERT_NE(Load(tensor), nullptr);  // kernels are loaded, the buffers for uploads are there
  int failures = 0;
  for (int n = 1; n <= 40; ++n) {  // more calls than loading makes
    fake_.FailNthAcquisition(n, CUDA_ERROR_OUT_OF_MEMORY);
    const auto layer = device_->LoadLayer(tensor);
    fake_.ClearFailures();
    if (!layer.ok()) {
      ++failures;
      EXPECT_EQ(ReasonOf(layer.status()), "GPU_OOM") << layer.status();
      EXPECT_EQ(device_->weights_bytes(), 0u);
    }
    const auto next =
        layer.ok() ? std::dynamic_pointer_cast<const CudaLayer>(*layer) : Load(tensor);
    ASSERT_NE(next, nullptr);
    ExpectPacked(*next, tensor);
  }
  EXPECT_GT(failures, 15);
  Close();
  EXPECT_EQ(fake_.Live(), "");
}

}  // namespace
}  // namespace gemmd::testing
