// The CUDA device from request to result on the fake driver: planning, upload, arguments, sequence of
// launches, chunks, errors. Nothing is compiled: the kernels' own parts run on the CPU.
#include "core/exec/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include "kernels/base/status.h"
#include "kernels/cuda/context.h"
#include "kernels/kernel_store.h"
#include "tests/kernels/device_runner.h"
#include "tests/kernels/fake_compiler.h"
#include "tests/kernels/launch/fake_kernels.h"
#include "tests/kernels/moe_runner.h"

namespace gemmd::testing {
namespace {

using cuda::FakeDriver;
using cuda::FakeGpu;
using ::testing::HasSubstr;

using Int4Dense = HostConfig<IntegerFormat(4), kFloat16>;
using Int8Dense = HostConfig<IntegerFormat(8), kFloat32>;
using Int4Indexed = HostConfig<IntegerFormat(4), kFloat16, ZeroPointKind::kNone, RowMapping::kIndexed>;
using Int2Indexed = HostConfig<IntegerFormat(2), kFloat32, ZeroPointKind::kNone, RowMapping::kIndexed>;

QuantSpec GroupSpec(const NumberFormat& weight, const NumberFormat& scale, int64_t group) {
  QuantSpec spec;
  spec.weight = weight;
  spec.scale = scale;
  spec.scale_block_k = group;
  return spec;
}

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cuda::SetDriverForTesting(&fake_.table());
    UseDevice({.cache = store_->cache(), .self_test = false});
  }
  void TearDown() override {
    store_->Close();
    device_.reset();
    cuda::SetDriverForTesting(nullptr);
    EXPECT_EQ(fake_.Live(), "");
  }

  void UseDevice(const CudaDeviceOptions& options) {
    auto devices = CreateCudaDevices(options);
    ASSERT_TRUE(devices.ok()) << devices.status().ToString();
    ASSERT_EQ(devices->size(), 1u);
    device_ = std::move(devices->front());
  }

  template <class Config>
  void UseKernels() {
    fake_.OnLaunch(&RunFakeKernel<Config>);
  }

  FakeCompiler compiler_;
  std::shared_ptr<KernelStore> store_ =
      *KernelStore::Open({.compile_helper = FakeCompiler::Helper()});
  // An architecture that only the generic kernel serves: that one runs on the CPU.
  FakeDriver fake_{{FakeGpu{.cc_major = 8}}};
  std::unique_ptr<Device> device_;
  Random random_{17};
};

TEST_F(CudaDeviceTest, RunsADenseGemm) {
  UseKernels<Int4Dense>();
  DeviceRunner runner(*device_);
  QuantSpec spec = GroupSpec(IntegerFormat(4), kFloat16, 32);
  spec.bias = kFloat16;
  const StandardTensor tensor = RandomTensor(spec, {1, 70, 75}, random_);
  const auto layer = runner.Load(tensor);
  ASSERT_NE(layer, nullptr);
  EXPECT_GT(device_->weights_bytes(), 0u);
  const GemmRun run =
      RunGemmCase(runner, tensor, layer, {.m = 66, .x_gap = 5, .y_gap = 3, .shift = 1}, random_);
  EXPECT_EQ(run.report.kernel, "gemm_tf32x2_int4_f16_dense_64x64x32");
  EXPECT_EQ(run.report.activation_used, kFloat16);
  EXPECT_EQ(run.report.reason, "");
  const auto explanation = device_->Explain(*layer, 1);
  ASSERT_TRUE(explanation.ok());
  EXPECT_EQ(explanation->choice.kernel, run.report.kernel);
}

TEST_F(CudaDeviceTest, LaunchesNothingForNoRows) {
  DeviceRunner runner(*device_);
  const StandardTensor tensor =
      RandomTensor(GroupSpec(IntegerFormat(4), kFloat16, 32), {1, 8, 8}, random_);
  const auto layer = runner.Load(tensor);
  ASSERT_NE(layer, nullptr);
  RunGemmCase(runner, tensor, layer, {.m = 0}, random_);
  EXPECT_EQ(fake_.Calls("cuLaunchKernelEx"), 0);
}

TEST_F(CudaDeviceTest, UsesStaticTokenAndGroupActivationScales) {
  UseKernels<Int8Dense>();
  DeviceRunner runner(*device_);
  QuantSpec spec = GroupSpec(IntegerFormat(8), kFloat32, 0);
  spec.activation = kInt8;
  spec.activation_scale = ActivationScaleKind::kStaticTensor;
  const StandardTensor fixed = RandomTensor(spec, {1, 12, 40}, random_);
  const auto fixed_layer = runner.Load(fixed);
  RunGemmCase(runner, fixed, fixed_layer, {.m = 3, .x_type = kInt8}, random_);
  RunGemmCase(runner, fixed, fixed_layer, {.m = 3, .x_type = kInt8, .x_scale_columns = 1}, random_);
  const GemmRun wide =
      RunGemmCase(runner, fixed, fixed_layer, {.m = 3, .x_type = kBFloat16}, random_);
  EXPECT_EQ(wide.report.activation_used, kBFloat16);
  EXPECT_THAT(wide.report.reason, HasSubstr("used as it is: the generic kernel serves the layer"));
  spec.activation_scale = ActivationScaleKind::kDynamicGroup;
  spec.activation_group = 16;
  const StandardTensor grouped = RandomTensor(spec, {1, 12, 40}, random_);
  RunGemmCase(runner, grouped, runner.Load(grouped),
              {.m = 3, .x_type = kInt8, .x_scale_columns = 3}, random_);
}

struct MoeLayers {
  StandardTensor gate_up;
  StandardTensor down;
  std::shared_ptr<DeviceLayer> gate_up_layer;
  std::shared_ptr<DeviceLayer> down_layer;
};

MoeLayers LoadMoe(DeviceRunner& runner, const QuantSpec& spec, int64_t experts, int64_t k,
                  int64_t hidden, bool gated, bool integers, Random& random) {
  const LayerOptions options{.integer_valued = integers};
  MoeLayers layers;
  layers.gate_up = RandomTensor(spec, {experts, gated ? 2 * hidden : hidden, k}, random, options);
  layers.down = RandomTensor(spec, {experts, k, hidden}, random, options);
  layers.gate_up_layer = runner.Load(layers.gate_up);
  layers.down_layer = runner.Load(layers.down);
  return layers;
}

void RunCase(DeviceRunner& runner, const MoeLayers& layers, MoeCase c, Random& random) {
  c.invalid_ids = true;
  RunMoeCase(runner, layers.gate_up, layers.down, layers.gate_up_layer, layers.down_layer, c,
             random);
}

TEST_F(CudaDeviceTest, RunsMixtureOfExpertsWithAbsentAndForeignIds) {
  UseKernels<Int4Indexed>();
  DeviceRunner runner(*device_);
  QuantSpec spec = GroupSpec(IntegerFormat(4), kFloat16, 16);
  spec.bias = kFloat32;
  const MoeLayers layers = LoadMoe(runner, spec, 5, 40, 24, true, false, random_);
  ASSERT_NE(layers.down_layer, nullptr);
  RunCase(runner, layers,
          {.tokens = 33, .top_k = 3, .first_expert = 2, .total_experts = 9, .gap = 3, .shift = 1},
          random_);
  RunCase(runner, layers, {.tokens = 4, .all_absent = true}, random_);
  RunCase(runner, layers, {.tokens = 0}, random_);
  RunCase(runner, layers, {.tokens = 7, .top_k = 1, .router_weight_on_input = true}, random_);
  RunCase(runner, layers,
          {.tokens = 7, .activation = ActivationFunction::kSwigluClamped, .limit = 1}, random_);
  RunCase(runner, layers,
          {.tokens = 9,
           .from_logits = true,
           .renormalize = true,
           .first_expert = 1,
           .total_experts = 7},
          random_);
}

TEST_F(CudaDeviceTest, IntegerValuedMixtureOfExpertsIsExact) {
  UseKernels<Int2Indexed>();
  DeviceRunner runner(*device_);
  const MoeLayers layers =
      LoadMoe(runner, GroupSpec(IntegerFormat(2), kFloat32, 8), 3, 9, 10, false, true, random_);
  RunCase(runner, layers,
          {.tokens = 90,
           .top_k = 2,
           .x_type = kFloat32,
           .activation = ActivationFunction::kReluSquared,
           .integer_valued = true},
          random_);
}

TEST_F(CudaDeviceTest, RunsLargeRequestsInChunks) {
  UseDevice({.moe_workspace_bytes = 20000, .cache = store_->cache(), .self_test = false});
  UseKernels<Int4Indexed>();
  DeviceRunner runner(*device_);
  const MoeLayers layers =
      LoadMoe(runner, GroupSpec(IntegerFormat(4), kFloat16, 16), 4, 24, 16, true, false, random_);
  const int before = fake_.Calls("cuLaunchKernelEx");
  RunCase(runner, layers, {.tokens = 100, .top_k = 2, .total_experts = 6, .gap = 2}, random_);
  EXPECT_GT(fake_.Calls("cuLaunchKernelEx") - before, 3 * 6);
  RunCase(runner, layers, {.tokens = 50, .from_logits = true, .gap = 2}, random_);
}

TEST_F(CudaDeviceTest, ReportsAFullGpuAndGoesOn) {
  UseKernels<Int4Dense>();
  DeviceRunner runner(*device_);
  const StandardTensor tensor =
      RandomTensor(GroupSpec(IntegerFormat(4), kFloat16, 32), {1, 8, 8}, random_);
  fake_.Fail("cuMemCreate", CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(ReasonOf(device_->LoadLayer(tensor).status()), "GPU_OOM");
  EXPECT_TRUE(device_->health().ok());
  EXPECT_EQ(device_->weights_bytes(), 0u);
  RunGemmCase(runner, tensor, runner.Load(tensor), {.m = 2}, random_);
}

TEST_F(CudaDeviceTest, AStickyErrorEndsTheDevice) {
  UseKernels<Int4Dense>();
  DeviceRunner runner(*device_);
  const StandardTensor tensor =
      RandomTensor(GroupSpec(IntegerFormat(4), kFloat16, 32), {1, 8, 8}, random_);
  const auto layer = runner.Load(tensor);
  const HostMatrix host = RandomMatrix(kFloat16, 1, 8, random_);
  const DeviceMatrix x = runner.Upload(host);
  const DeviceMatrix y = runner.Upload(host);
  GemmCall call;
  call.layer = layer;
  call.x = x.view;
  call.y = y.view;
  fake_.Fail("cuStreamSynchronize", CUDA_ERROR_ILLEGAL_ADDRESS);
  const absl::StatusOr<CallReport> lost = device_->RunGemm(runner.stream(), call);
  EXPECT_EQ(lost.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReasonOf(lost.status()), "CONTEXT_LOST");
  EXPECT_EQ(ReasonOf(device_->health()), "CONTEXT_LOST");
  EXPECT_EQ(ReasonOf(device_->LoadLayer(tensor).status()), "CONTEXT_LOST");
}

TEST_F(CudaDeviceTest, RefusesLayersAndStreamsOfAnotherDevice) {
  DeviceRunner runner(*device_);
  auto others = CreateCudaDevices({.cache = store_->cache()});
  ASSERT_TRUE(others.ok());
  const StandardTensor tensor =
      RandomTensor(GroupSpec(IntegerFormat(4), kFloat16, 32), {1, 8, 8}, random_);
  const auto layer = runner.Load(tensor);
  ASSERT_NE(layer, nullptr);
  EXPECT_EQ(ReasonOf(others->front()->Explain(*layer, 1).status()), "WRONG_DEVICE");
}

TEST_F(CudaDeviceTest, OpensOneIpcHandleOnce) {
  fake_.AllowOpeningOwnHandles(true);
  auto memory = device_->Allocate(4096);
  ASSERT_TRUE(memory.ok());
  auto context = cuda::PrimaryContext::Retain(fake_.table(), 0);
  ASSERT_TRUE(context.ok());
  const cuda::ScopedContext scope(*context);
  CUipcMemHandle handle;
  ASSERT_EQ(fake_.table().cuIpcGetMemHandle(&handle, (*memory)->address()), CUDA_SUCCESS);
  const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(&handle),
                                          sizeof(handle));
  auto first = device_->OpenCudaIpc(bytes, 4096);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  auto second = device_->OpenCudaIpc(bytes, 0);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ((*first)->address(), (*second)->address());
  EXPECT_EQ(fake_.Calls("cuIpcOpenMemHandle"), 1);
  EXPECT_EQ(ReasonOf(device_->OpenCudaIpc(bytes, 1 << 30).status()), "REGION_OUT_OF_BOUNDS");
  first->reset();
  EXPECT_EQ(fake_.Calls("cuIpcCloseMemHandle"), 0);
  second->reset();
  EXPECT_EQ(fake_.Calls("cuIpcCloseMemHandle"), 1);
  EXPECT_TRUE(device_->OpenCudaIpc(bytes, 4096).ok());
  EXPECT_EQ(ReasonOf(device_->OpenCudaIpc(bytes.subspan(1), 4096).status()), "BAD_HANDLE_SIZE");
}

TEST_F(CudaDeviceTest, LayersOutliveTheDevice) {
  std::shared_ptr<DeviceLayer> layer;
  {
    DeviceRunner runner(*device_);
    layer =
        runner.Load(RandomTensor(GroupSpec(IntegerFormat(4), kFloat16, 32), {1, 8, 8}, random_));
  }
  device_.reset();
  layer.reset();
}

// What a launch was asked for; the kernel itself needs the GPU.
TEST(CudaDevicesTest, HopperServesInt4WithPackedWeights) {
  FakeCompiler compiler;
  const auto store = *KernelStore::Open({.compile_helper = FakeCompiler::Helper()});
  FakeDriver fake({FakeGpu{}});
  cuda::SetDriverForTesting(&fake.table());
  cuda::FakeLaunch last;
  GemmArgs args{};
  fake.OnLaunch([&](const cuda::FakeLaunch& launch) {
    if (RunFakePack(launch)) return CUDA_SUCCESS;
    last = launch;
    std::memcpy(&args, launch.params[0], sizeof(args));
    return CUDA_SUCCESS;
  });
  {
    auto devices = CreateCudaDevices({.cache = store->cache(), .self_test = false});
    ASSERT_TRUE(devices.ok());
    DeviceRunner runner(*devices->front());
    Random random(3);
    const StandardTensor tensor =
        RandomTensor(GroupSpec(IntegerFormat(4), kFloat16, 128), {1, 200, 300}, random);
    GemmCall call;
    call.layer = runner.Load(tensor);
    ASSERT_NE(call.layer, nullptr);
    const DeviceMatrix x = runner.Upload(RandomMatrix(kBFloat16, 5, 300, random));
    const DeviceMatrix y = runner.Upload(PoisonedMatrix(kBFloat16, 5, 200));
    call.x = x.view;
    call.y = y.view;
    auto report = devices->front()->RunGemm(runner.stream(), call);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_THAT(report->kernel, HasSubstr("gemm_sm90_bf16_int4_f16s128_8x"));
    EXPECT_NE(args.weights.packed, nullptr);
    EXPECT_EQ(args.m, 5);
    EXPECT_EQ(last.config.gridDimX % last.cluster_x, 0u);
    EXPECT_GT(last.config.sharedMemBytes, 48u << 10);
    call.batch_invariant = true;
    report = devices->front()->RunGemm(runner.stream(), call);
    ASSERT_TRUE(report.ok());
    EXPECT_THAT(report->kernel, HasSubstr("gemm_tf32")) << "its sums do not depend on M";
    const DeviceMatrix wide = runner.Upload(RandomMatrix(kFloat32, 5, 300, random));
    call.batch_invariant = false;
    call.x = wide.view;
    report = devices->front()->RunGemm(runner.stream(), call);
    ASSERT_TRUE(report.ok());
    EXPECT_THAT(report->kernel, HasSubstr("gemm_tf32"));
    const auto explanation = devices->front()->Explain(*call.layer, 200);
    ASSERT_TRUE(explanation.ok());
    EXPECT_THAT(explanation->choice.kernel, HasSubstr("gemm_sm90_bf16_int4_f16s128_"));
  }
  cuda::SetDriverForTesting(nullptr);
}

TEST(CudaDevicesTest, TuringIsListedAndRefusesLayersWithTheReason) {
  FakeDriver fake({FakeGpu{.cc_major = 7, .cc_minor = 5}});
  cuda::SetDriverForTesting(&fake.table());
  {
    auto devices = CreateCudaDevices({});
    ASSERT_TRUE(devices.ok());
    ASSERT_EQ(devices->size(), 1u);
    Random random(1);
    const absl::StatusOr<std::shared_ptr<DeviceLayer>> layer = devices->front()->LoadLayer(
        RandomTensor(GroupSpec(IntegerFormat(4), kFloat16, 32), {1, 8, 8}, random));
    EXPECT_EQ(layer.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_EQ(ReasonOf(layer.status()), "NO_KERNEL");
  }
  cuda::SetDriverForTesting(nullptr);
}

TEST(CudaDevicesTest, ListsTheLargestGpuFirst) {
  FakeDriver fake({FakeGpu{.uuid_seed = 1, .memory_bytes = 1 << 30},
                   FakeGpu{.uuid_seed = 9, .memory_bytes = uint64_t{1} << 32}});
  cuda::SetDriverForTesting(&fake.table());
  {
    auto devices = CreateCudaDevices({});
    ASSERT_TRUE(devices.ok());
    ASSERT_EQ(devices->size(), 2u);
    EXPECT_EQ((*devices)[0]->description().memory_bytes, uint64_t{1} << 32);
    EXPECT_THAT((*devices)[0]->description().id, HasSubstr("cuda:GPU-090a"));
    EXPECT_EQ((*devices)[0]->description().architecture, "sm_90a");
  }
  cuda::SetDriverForTesting(nullptr);
}

}  // namespace
}  // namespace gemmd::testing
