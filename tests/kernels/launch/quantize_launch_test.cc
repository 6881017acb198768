// Quantization of x in front of a GEMM: workspace and arguments, then whole requests on the fake driver,
// whose kernels run on the CPU.
#include "kernels/launch/quantize_launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <vector>

#include "kernels/base/status.h"
#include "tests/kernels/device/host_quantize.h"
#include "tests/kernels/launch/fake_kernels.h"
#include "tests/kernels/launch/quantize_path.h"
#include "tests/kernels/quantized_runner.h"
#include "tests/support/fake_driver.h"

namespace gemmd::testing {
namespace {

using ::testing::HasSubstr;

QuantizeKernel Kernel(QuantizeMode mode, int64_t k, int64_t group = 0) {
  QuantizeKernel kernel;
  kernel.mode = mode;
  kernel.k = k;
  kernel.group = group;
  kernel.slice_columns = k;
  kernel.threads = 64;
  return kernel;
}

GemmArgs Args(int64_t m, int64_t x_row_stride) {
  GemmArgs args{};
  args.x = reinterpret_cast<const void*>(uintptr_t{0x1000});
  args.y = reinterpret_cast<void*>(uintptr_t{0x2000});
  args.x_row_stride = x_row_stride;
  args.y_row_stride = 10;
  args.m = m;
  args.x_type = ElementType::kFloat32;
  args.y_type = ElementType::kBFloat16;
  args.split_activations = 1;
  return args;
}

TEST(QuantizeWorkspaceTest, HoldsCodesInAlignedRowsAndScalesBehind) {
  const QuantizeWorkspace token =
      LayoutQuantizeWorkspace(Kernel(QuantizeMode::kDynamicToken, 1001), 7);
  EXPECT_EQ(token.codes_row_stride, 1008);
  EXPECT_EQ(token.scales, 7168u);
  EXPECT_EQ(token.bytes, 7168u + 7 * 4);
  const QuantizeWorkspace group =
      LayoutQuantizeWorkspace(Kernel(QuantizeMode::kDynamicGroup, 1001, 128), 7);
  EXPECT_EQ(group.bytes, 7168u + 7 * 8 * 4);
  const QuantizeWorkspace fixed =
      LayoutQuantizeWorkspace(Kernel(QuantizeMode::kStaticTensor, 1001), 7);
  EXPECT_EQ(fixed.bytes, 7168u);
}

TEST(QuantizeWorkspaceTest, RowsAtATimeFitTheBudget) {
  const QuantizeKernel kernel = Kernel(QuantizeMode::kDynamicGroup, 8192, 128);
  EXPECT_EQ(QuantizeRowsAtATime(kernel, 100, 1 << 30), 100);
  const int64_t rows = QuantizeRowsAtATime(kernel, 1 << 20, 1 << 20);
  EXPECT_LE(LayoutQuantizeWorkspace(kernel, rows).bytes, (1u << 20) + 256);
  EXPECT_GT(LayoutQuantizeWorkspace(kernel, rows + 2).bytes, 1u << 20);
  EXPECT_EQ(QuantizeRowsAtATime(kernel, 100, 1), 1);
  EXPECT_EQ(QuantizeRowsAtATime(kernel, 0, 1 << 20), 1);
}

TEST(QuantizeInFrontTest, TheGemmReadsWhatTheQuantizerWrites) {
  QuantizeKernel kernel = Kernel(QuantizeMode::kDynamicGroup, 300, 128);
  kernel.code_type = ElementType::kFloat8E5M2;
  const QuantizedGemm group = QuantizeInFront(kernel, Args(5, 333), {}, 0x10000);
  EXPECT_EQ(group.quantize.x, Args(5, 333).x);
  EXPECT_EQ(group.quantize.x_row_stride, 333);
  EXPECT_EQ(group.quantize.m, 5);
  EXPECT_EQ(group.gemm.x, group.quantize.codes);
  EXPECT_EQ(group.gemm.x_type, ElementType::kFloat8E5M2);
  EXPECT_EQ(group.gemm.x_row_stride, group.quantize.codes_row_stride);
  EXPECT_EQ(group.gemm.group_scale, group.quantize.scales);
  EXPECT_EQ(group.gemm.group_scale_stride, 4) << "as a tensor map wants it";
  EXPECT_EQ(group.gemm.group_scale_columns, 128);
  EXPECT_EQ(group.gemm.row_scale, nullptr);
  EXPECT_EQ(group.gemm.split_activations, 1);
  kernel = Kernel(QuantizeMode::kDynamicToken, 300);
  const QuantizedGemm token = QuantizeInFront(kernel, Args(5, 300), {}, 0x10000);
  EXPECT_EQ(token.gemm.row_scale, token.quantize.scales);
  EXPECT_EQ(token.gemm.row_scale_stride, 1);
  EXPECT_EQ(token.gemm.group_scale, nullptr);
  EXPECT_EQ(token.gemm.split_activations, 0);
  const float scale = 0.5f;
  kernel = Kernel(QuantizeMode::kStaticTensor, 300);
  const QuantizedGemm fixed = QuantizeInFront(kernel, Args(5, 300), {&scale}, 0x10000);
  EXPECT_EQ(fixed.quantize.static_scale, &scale);
  EXPECT_EQ(fixed.gemm.weights.activation_scale, &scale);
  EXPECT_EQ(fixed.gemm.row_scale, nullptr);
}

TEST(QuantizeGridTest, HasABlockPerRowAndSlice) {
  QuantizeKernel kernel = Kernel(QuantizeMode::kDynamicGroup, 10000, 128);
  kernel.slice_columns = 4096;
  kernel.threads = 128;
  kernel.shared_bytes = 132;
  const cuda::LaunchGrid grid = QuantizeGrid(kernel, 70000);
  EXPECT_EQ(grid.grid.x, 70000u);
  EXPECT_EQ(grid.grid.y, 3u);
  EXPECT_EQ(grid.block.x, 128u);
  EXPECT_EQ(grid.dynamic_shared_bytes, 132u);
}

TEST(QuantizeLaunchTest, RefusesMoreRowsThanAGridHasAndLaunchesNothingForNone) {
  cuda::FakeDriver fake;
  QuantizeArgs args{};
  const QuantizeKernel kernel = Kernel(QuantizeMode::kDynamicToken, 300);
  EXPECT_TRUE(LaunchQuantize(fake.table(), kernel, args, nullptr).ok());
  args.m = int64_t{1} << 31;
  EXPECT_EQ(ReasonOf(LaunchQuantize(fake.table(), kernel, args, nullptr)), "SHAPE_MISMATCH");
  EXPECT_EQ(fake.Calls("cuLaunchKernelEx"), 0);
}

// ---- whole requests ----

template <NumberFormat kWeight, CodeOrder kOrder>
using RowScaled = HostConfig<kWeight, kFloat32, ZeroPointKind::kNone,
                             RowMapping::kDense, 2, kOrder>;
using E4M3Rows = RowScaled<kFloat8E4M3, CodeOrder::kPackedForFloat8>;
using Int8Rows = RowScaled<IntegerFormat(8), CodeOrder::kPackedForInt8>;
using E4M3Unpacked = RowScaled<kFloat8E4M3, CodeOrder::kRows>;

class QuantizePathTest : public QuantizePath {
 protected:
  QuantizePathTest() : QuantizePath({}, 23) {}

  void See(const cuda::FakeLaunch&, const QuantizeArgs&) override { ++quantized_; }

  StandardTensor Tensor(const NumberFormat& weight, const NumberFormat& activation,
                        ActivationScaleKind kind, int64_t group = 0) {
    QuantSpec spec;
    spec.weight = weight;
    spec.scale = kFloat32;
    spec.activation = activation;
    spec.activation_scale = kind;
    spec.activation_group = group;
    return RandomTensor(spec, {1, 70, 300}, random_);
  }

  // Batch-invariant requests take the generic kernel, which the fake driver can run.
  void ExpectQuantized(const StandardTensor& tensor, const NumberFormat& x_type, int64_t m) {
    DeviceRunner runner(*device_);
    const auto layer = runner.Load(tensor);
    ASSERT_NE(layer, nullptr);
    const GemmCase c{.m = m, .x_type = x_type, .x_gap = 3, .shift = 1, .batch_invariant = true};
    const GemmRun run = RunQuantizedCase(runner, tensor, layer, c, random_);
    EXPECT_THAT(run.report.kernel, HasSubstr("gemm_tf32"));
  }

  int quantized_ = 0;
};

TEST_F(QuantizePathTest, RowsGetTheirScale) {
  Open();
  UseKernels<HostQuantizeConfig<kBf16, kE4M3, QuantizeMode::kDynamicToken>, E4M3Rows>();
  ExpectQuantized(Tensor(kFloat8E4M3, kFloat8E4M3, ActivationScaleKind::kDynamicToken), kBFloat16,
                  9);
  EXPECT_EQ(quantized_, 1);
  UseKernels<HostQuantizeConfig<kF16, ElementType::kInt8, QuantizeMode::kDynamicToken>, Int8Rows>();
  ExpectQuantized(Tensor(IntegerFormat(8), kInt8, ActivationScaleKind::kDynamicToken), kFloat16,
                  70);
}

TEST_F(QuantizePathTest, GroupsGetTheirScale) {
  Open();
  UseKernels<HostQuantizeConfig<kF32, kE4M3, QuantizeMode::kDynamicGroup>, E4M3Rows>();
  ExpectQuantized(Tensor(kFloat8E4M3, kFloat8E4M3, ActivationScaleKind::kDynamicGroup, 128),
                  kFloat32, 5);
}

TEST_F(QuantizePathTest, AStaticScaleIsTheLayers) {
  Open();
  UseKernels<HostQuantizeConfig<kBf16, kE4M3, QuantizeMode::kStaticTensor>, E4M3Rows>();
  ExpectQuantized(Tensor(kFloat8E4M3, kFloat8E4M3, ActivationScaleKind::kStaticTensor), kBFloat16,
                  5);
}

TEST_F(QuantizePathTest, LargeRequestsRunInChunks) {
  Open(/*workspace_bytes=*/5000);  // 16 rows
  UseKernels<HostQuantizeConfig<kBf16, kE4M3, QuantizeMode::kDynamicToken>, E4M3Rows>();
  ExpectQuantized(Tensor(kFloat8E4M3, kFloat8E4M3, ActivationScaleKind::kDynamicToken), kBFloat16,
                  100);
  EXPECT_EQ(quantized_, 7);
}

TEST_F(QuantizePathTest, NoRowsLaunchNothing) {
  Open();
  const StandardTensor tensor =
      Tensor(kFloat8E4M3, kFloat8E4M3, ActivationScaleKind::kDynamicToken);
  DeviceRunner runner(*device_);
  const auto layer = runner.Load(tensor);
  const int before = fake_.Calls("cuLaunchKernelEx");
  RunQuantizedCase(runner, tensor, layer, {.m = 0, .x_type = kBFloat16}, random_);
  EXPECT_EQ(fake_.Calls("cuLaunchKernelEx"), before);
}

TEST_F(QuantizePathTest, ASecondRequestAllocatesNothing) {
  Open();
  UseKernels<HostQuantizeConfig<kBf16, kE4M3, QuantizeMode::kDynamicToken>, E4M3Rows>();
  const StandardTensor tensor =
      Tensor(kFloat8E4M3, kFloat8E4M3, ActivationScaleKind::kDynamicToken);
  DeviceRunner runner(*device_);
  GemmCall call;
  call.layer = runner.Load(tensor);
  const DeviceMatrix x = runner.Upload(RandomMatrix(kBFloat16, 5, 300, random_));
  const DeviceMatrix y = runner.Upload(PoisonedMatrix(kBFloat16, 5, 70));
  call.x = x.view;
  call.y = y.view;
  call.batch_invariant = true;
  ASSERT_TRUE(device_->RunGemm(runner.stream(), call).ok());
  const int before = fake_.Calls("cuMemAlloc");
  ASSERT_TRUE(device_->RunGemm(runner.stream(), call).ok());
  EXPECT_EQ(fake_.Calls("cuMemAlloc"), before);
}

TEST_F(QuantizePathTest, EightBitXIsTakenAsItIs) {
  Open();
  UseKernels<HostQuantizeConfig<kBf16, kE4M3, QuantizeMode::kDynamicToken>, E4M3Rows>();
  const StandardTensor tensor =
      Tensor(kFloat8E4M3, kFloat8E4M3, ActivationScaleKind::kDynamicToken);
  DeviceRunner runner(*device_);
  RunGemmCase(runner, tensor, runner.Load(tensor),
              {.m = 3, .x_type = kFloat8E4M3, .x_scale_columns = 1, .batch_invariant = true},
              random_);
  EXPECT_EQ(quantized_, 0);
}

TEST_F(QuantizePathTest, LayersWithoutAnEightBitKernelUseXAsItIsAndSaySo) {
  Open();
  UseKernels<HostQuantizeConfig<kBf16, kE4M3, QuantizeMode::kDynamicToken>, E4M3Unpacked>();
  StandardTensor tensor = Tensor(kFloat8E4M3, kFloat8E4M3, ActivationScaleKind::kDynamicGroup, 20);
  DeviceRunner runner(*device_);
  const GemmRun run =
      RunGemmCase(runner, tensor, runner.Load(tensor), {.m = 3, .x_type = kBFloat16}, random_);
  EXPECT_EQ(run.report.activation_used, kBFloat16);
  EXPECT_THAT(run.report.reason, HasSubstr("used as it is: groups of 20 columns"));
  EXPECT_EQ(quantized_, 0);
}

}  // namespace
}  // namespace gemmd::testing
