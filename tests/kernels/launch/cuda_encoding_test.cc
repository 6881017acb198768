// What the CUDA device does with layers that have an input scale or zero points of activations, on the fake
// driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/exec/cuda_device.h"
#include "core/quant/reference.h"
#include "kernels/base/status.h"
#include "kernels/cuda/context.h"
#include "kernels/kernel_store.h"
#include "tests/kernels/device_runner.h"
#include "tests/kernels/fake_compiler.h"
#include "tests/kernels/launch/fake_kernels.h"

namespace gemmd::testing {
namespace {

using cuda::FakeDriver;
using cuda::FakeGpu;
using ::testing::HasSubstr;

constexpr QuantSpec kSpec{.weight = IntegerFormat(4), .scale = kFloat16, .scale_block_k = 32};

template <typename T>
void Append(Buffer& buffer, T value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  buffer.insert(buffer.end(), bytes, bytes + sizeof(value));
}

class CudaEncodingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cuda::SetDriverForTesting(&fake_.table());
    fake_.OnLaunch(&RunFakeKernel<HostConfig<IntegerFormat(4), kFloat16>>);
    auto devices = CreateCudaDevices({.cache = store_->cache(), .self_test = false});
    ASSERT_TRUE(devices.ok()) << devices.status();
    device_ = std::move(devices->front());
  }
  void TearDown() override {
    store_->Close();
    device_.reset();
    cuda::SetDriverForTesting(nullptr);
  }

  // `factor` of column k.
  template <typename Factor>
  StandardTensor Scaled(Factor factor) {
    StandardTensor tensor = RandomTensor(kSpec, {1, 24, 64}, random_);
    tensor.has_input_scale = true;
    for (int k = 0; k < 64; ++k) Append(tensor.input_scale, float{factor(k)});
    return tensor;
  }

  FakeDriver fake_{{FakeGpu{.cc_major = 8}}};  // only the generic kernel serves it
  FakeCompiler compiler_;
  std::shared_ptr<KernelStore> store_ =
      *KernelStore::Open({.compile_helper = FakeCompiler::Helper()});
  std::unique_ptr<Device> device_;
  Random random_{17};
};

TEST_F(CudaEncodingTest, FoldsAnInputScaleThatDoes) {  // and launches nothing more
  const auto factor = [](int k) { return k < 32 ? 2.0f : 0.5f; };
  const StandardTensor scaled = Scaled(factor);
  const auto layer = device_->LoadLayer(scaled);
  ASSERT_TRUE(layer.ok()) << layer.status();
  // The same product with the factors in the weights' scales, which are powers of two here.
  StandardTensor expected = scaled;
  expected.has_input_scale = false;
  expected.input_scale.clear();
  for (size_t i = 0; i < expected.scales.size() / 2; ++i) {
    uint16_t code;
    std::memcpy(&code, expected.scales.data() + 2 * i, sizeof(code));
    const double scale = DecodeNumber(kFloat16, code) * (i % 2 == 0 ? 2.0 : 0.5);
    code = static_cast<uint16_t>(EncodeNumber(kFloat16, scale));
    std::memcpy(expected.scales.data() + 2 * i, &code, sizeof(code));
  }
  DeviceRunner runner(*device_);
  RunGemmCase(runner, expected, *layer, {.m = 5}, random_);
}

TEST_F(CudaEncodingTest, RefusesQuantizedXWithAZeroPoint) {
  StandardTensor tensor = RandomTensor(kSpec, {1, 24, 64}, random_);
  tensor.encoding = {.format = kInt8,
                     .scale = ActivationScaleKind::kStaticTensor,
                     .group = 0,
                     .zero_points = true,
                     .group_scale = kNoFormat};
  Append(tensor.activation_scale, 0.5f);
  Append(tensor.activation_zero_point, int16_t{3});
  ASSERT_TRUE(Validate(tensor).ok()) << Validate(tensor);
  DeviceRunner runner(*device_);
  const auto layer = runner.Load(tensor);
  ASSERT_NE(layer, nullptr);
  RunGemmCase(runner, tensor, layer, {.m = 5}, random_);  // x of 16 bits is what it is
  std::vector<std::byte> memory(4096);
  GemmCall call;
  call.layer = layer;
  call.x = {reinterpret_cast<uintptr_t>(memory.data()), kInt8, true, 1, 64, 64};
  call.y = {reinterpret_cast<uintptr_t>(memory.data() + 2048), kFloat16, false, 1, 24, 24};
  const auto stream = device_->CreateStream();
  ASSERT_TRUE(stream.ok()) << stream.status();
  const auto report = device_->RunGemm(**stream, call);
  EXPECT_EQ(report.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(ReasonOf(report.status()), "UNSUPPORTED_OPTION") << report.status();
  EXPECT_THAT(std::string(report.status().message()), HasSubstr("zero point"));
}

}  // namespace
}  // namespace gemmd::testing
