// Requests on a Hopper GPU up to the driver: which calls a request costs, and which kernel takes x that lies
// crookedly. Kernels are neither compiled nor run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>

#include "core/exec/cuda_device.h"
#include "kernels/contract/gemm_args.h"
#include "kernels/kernel_store.h"
#include "tests/kernels/device_runner.h"
#include "tests/kernels/fake_compiler.h"
#include "tests/support/fake_driver.h"

namespace gemmd::testing {
namespace {

using ::testing::Contains;
using ::testing::Pair;

using Calls = std::map<std::string, int>;

class HopperPathTest : public ::testing::Test {
 protected:
  HopperPathTest() {
    cuda::SetDriverForTesting(&fake_.table());
    store_ = *KernelStore::Open({.compile_helper = FakeCompiler::Helper()});
    CudaDeviceOptions options{.cache = store_->cache()};
    options.self_test = false;
    device_ = std::move((*CreateCudaDevices(options))[0]);
    stream_ = *device_->CreateStream();
    fake_.OnLaunch([this](const cuda::FakeLaunch& launch) {
      kernel_ = launch.kernel;
      overlaps_ = launch.overlaps_previous;
      if (kernel_.find("Quantize") == std::string::npos) {
        std::memcpy(&args_, launch.params[0], sizeof(args_));
      }
      return CUDA_SUCCESS;
    });
  }
  ~HopperPathTest() override {
    store_->Close();
    stream_.reset();
    memory_.reset();
    device_.reset();
    cuda::SetDriverForTesting(nullptr);
  }

  std::shared_ptr<DeviceLayer> Load(const QuantSpec& spec, int64_t n, int64_t k) {
    auto layer = device_->LoadLayer(RandomTensor(spec, {1, n, k}, random_));
    EXPECT_TRUE(layer.ok()) << layer.status();
    return *layer;
  }
  static QuantSpec Int4() { return Spec(IntegerFormat(4), kBFloat16, 1, 128); }

  // x begins `shift` bytes behind a multiple of 256, its rows are `gap` elements apart. Nobody reads them.
  struct Case {
    int64_t m = 1;
    int64_t shift = 0;
    int64_t gap = 0;
    bool batch_invariant = false;
  };
  GemmCall MakeCall(const std::shared_ptr<DeviceLayer>& layer, const Case& c) {
    const auto [experts, n, k] = layer->shape();
    const int64_t x_bytes = c.m * (k + c.gap) * 2 + 512;
    const auto bytes = static_cast<uint64_t>(x_bytes + c.m * n * 2);
    if (memory_ == nullptr || memory_->size() < bytes) memory_ = *device_->Allocate(bytes);
    GemmCall call;
    call.layer = layer;
    call.x = {memory_->address() + static_cast<uintptr_t>(c.shift), kBFloat16, false, c.m, k,
              c.m > 1 ? k + c.gap : k};
    call.y = {memory_->address() + static_cast<uintptr_t>((x_bytes + 255) / 256 * 256), kBFloat16, false,
              c.m, n, n};
    call.batch_invariant = c.batch_invariant;
    return call;
  }
  std::string Run(const GemmCall& call) {
    const auto report = device_->RunGemm(*stream_, call);
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? report->kernel : "";
  }

  // Of every kind so far.
  Calls Count() const {
    Calls calls;
#define GEMMD_COUNT(name) calls[#name] = fake_.Calls(#name);
    GEMMD_CUDA_DRIVER_FUNCTIONS(GEMMD_COUNT)
#undef GEMMD_COUNT
    return calls;
  }
  // What one more request costs.
  Calls CallsOf(const GemmCall& call) {
    const Calls before = Count();
    Run(call);
    Calls made;
    for (const auto& [name, count] : Count()) {
      if (count != before.at(name)) made[name] = count - before.at(name);
    }
    return made;
  }

  bool IsSlabKernel() const { return kernel_.find("GemmSm90Slab") != std::string::npos; }
  bool IsSm90Kernel() const { return kernel_.find("GemmSm90") != std::string::npos; }

  FakeCompiler compiler_;
  cuda::FakeDriver fake_;
  std::shared_ptr<KernelStore> store_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Memory> memory_;
  Random random_{29};
  std::string kernel_;  // the last one
  bool overlaps_ = false;
  GemmArgs args_{};
};

TEST_F(HopperPathTest, ARequestAsTheLastOneMakesOneLaunchAndNoOtherWork) {
  const GemmCall call = MakeCall(Load(Int4(), 256, 512), {.m = 300, .gap = 0});
  EXPECT_THAT(CallsOf(call), Contains(Pair("cuTensorMapEncodeTiled", 1)));
  EXPECT_EQ(args_.has_x_map, 1u);
  const Calls steady = {{"cuCtxPushCurrent", 1},
                        {"cuLaunchKernelEx", 1},
                        {"cuStreamSynchronize", 1},
                        {"cuCtxPopCurrent", 1}};
  EXPECT_EQ(CallsOf(call), steady);
  EXPECT_EQ(args_.has_x_map, 1u);
}

TEST_F(HopperPathTest, QuantizationInFrontIsOneLaunchMore) {
  QuantSpec spec = Spec(kFloat8E4M3, kFloat32, 128, 128);
  spec.activation = kFloat8E4M3;
  spec.activation_scale = ActivationScaleKind::kDynamicGroup;
  spec.activation_group = 128;
  const GemmCall call = MakeCall(Load(spec, 256, 512), {.m = 300});
  EXPECT_THAT(CallsOf(call), Contains(Pair("cuMemAlloc", 1))) << "the workspace";
  const Calls steady = {{"cuCtxPushCurrent", 1},
                        {"cuLaunchKernelEx", 2},
                        {"cuStreamSynchronize", 1},
                        {"cuCtxPopCurrent", 1}};
  EXPECT_EQ(CallsOf(call), steady);
}

TEST_F(HopperPathTest, OnlyKernelsThatWaitBeginEarly) {
  const auto layer = Load(Int4(), 256, 512);
  Run(MakeCall(layer, {.m = 5}));
  EXPECT_TRUE(IsSm90Kernel()) << kernel_;
  EXPECT_TRUE(overlaps_);
  Run(MakeCall(layer, {.m = 5, .batch_invariant = true}));
  EXPECT_FALSE(IsSm90Kernel()) << kernel_;
  EXPECT_FALSE(overlaps_);
}

// Every request gets a kernel that can read its x: slab kernels by tensor map only, which needs addresses and
// rows at multiples of 16 bytes; the others copy by threads where that is not so.
TEST_F(HopperPathTest, CrookedXIsReadByAKernelThatCan) {
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{70, 75}, {200, 328}, {1025, 1001}}) {
    const auto layer = Load(Int4(), n, k);
    const int64_t to_aligned = (8 - k % 8) % 8;
    for (const int64_t m : {1, 2, 33, 300, 2049}) {
      for (const int64_t shift : {0, 2, 8, 16, 30}) {
        for (const int64_t gap : {to_aligned, to_aligned + 1, to_aligned + 4, to_aligned + 8}) {
          const GemmCall call = MakeCall(layer, {.m = m, .shift = shift, .gap = gap});
          const std::string name = Run(call);
          const bool aligned = shift % 16 == 0 && (m == 1 || (k + gap) % 8 == 0);
          ASSERT_TRUE(IsSm90Kernel()) << kernel_;
          EXPECT_EQ(args_.has_x_map, aligned ? 1u : 0u) << name << ", M " << m << ", shift " << shift;
          EXPECT_TRUE(aligned || !IsSlabKernel()) << name << ", M " << m << ", shift " << shift;
          EXPECT_EQ(reinterpret_cast<uintptr_t>(args_.x), call.x.address);
        }
      }
    }
  }
}

TEST_F(HopperPathTest, ManyRowsAreOneLaunch) {
  const auto layer = Load(Int4(), 70, 75);
  for (const bool aligned : {true, false}) {
    const GemmCall call = MakeCall(layer, {.m = 131072, .gap = aligned ? 5 : 0});
    EXPECT_EQ(CallsOf(call)["cuLaunchKernelEx"], 1);
    EXPECT_TRUE(IsSm90Kernel()) << kernel_;
    EXPECT_EQ(args_.m, 131072);
    EXPECT_EQ(args_.has_x_map, aligned ? 1u : 0u);
    EXPECT_EQ(IsSlabKernel(), aligned);
  }
}

}  // namespace
}  // namespace gemmd::testing
