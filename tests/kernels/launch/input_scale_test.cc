// Layers with an input scale on the fake driver, whose kernels run on the CPU: x is multiplied in front of the GEMM.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/exec/cuda_layer.h"
#include "kernels/launch/quantize_launch.h"
#include "tests/kernels/device/host_quantize.h"
#include "tests/kernels/launch/fake_kernels.h"
#include "tests/kernels/launch/quantize_path.h"
#include "tests/kernels/scaled_runner.h"
#include "tests/support/fake_driver.h"

namespace gemmd::testing {
namespace {

using ::testing::HasSubstr;

constexpr ElementType kI8 = ElementType::kInt8;

template <ElementType kX, ElementType kCode = kX, QuantizeMode kMode = QuantizeMode::kNone>
using Scaler = HostQuantizeConfig<kX, kCode, kMode, 128, InputActivation::kNone, 0, 64, true>;

QuantizeKernel ScalerOf(ElementType x_type, ElementType code_type, int64_t k) {
  QuantizeKernel kernel;
  kernel.x_type = x_type;
  kernel.code_type = code_type;
  kernel.mode = QuantizeMode::kNone;
  kernel.multiplies = true;
  kernel.k = k;
  kernel.slice_columns = k;
  return kernel;
}

TEST(ScaleInFrontTest, TheGemmTakesProductsAsItTakesX) {
  const float factors[1] = {2};
  GemmArgs args{};
  args.m = 7;
  args.x_row_stride = 333;
  args.x_type = ElementType::kBFloat16;
  const QuantizeKernel kernel = ScalerOf(kBf16, kBf16, 301);
  const QuantizedGemm both = QuantizeInFront(kernel, args, {nullptr, factors}, 0x10000);
  EXPECT_EQ(both.quantize.input_scale, factors);
  EXPECT_EQ(both.quantize.x_row_stride, 333);
  EXPECT_EQ(both.quantize.codes_row_stride, 304) << "a multiple of 16 bytes";
  EXPECT_EQ(both.gemm.x, both.quantize.codes);
  EXPECT_EQ(both.gemm.x_row_stride, 304);
  EXPECT_EQ(both.gemm.x_type, kBf16);
  EXPECT_EQ(both.gemm.split_activations, 0);
  EXPECT_EQ(both.gemm.row_scale, nullptr);
  EXPECT_EQ(both.gemm.weights.activation_scale, nullptr);
}

TEST(ScaleInFrontTest, NarrowXBecomesFloat32AndKeepsItsScale) {
  const float scale[1] = {3};
  GemmArgs args{};
  args.m = 7;
  args.x_type = kE4M3;
  args.row_scale = scale;
  args.row_scale_stride = 5;
  const QuantizedGemm both = QuantizeInFront(ScalerOf(kE4M3, kF32, 301), args, {}, 0x10000);
  EXPECT_EQ(both.gemm.x_type, kF32);
  EXPECT_EQ(both.gemm.split_activations, 1);
  EXPECT_EQ(both.gemm.row_scale, scale);
  EXPECT_EQ(both.gemm.row_scale_stride, 5);
}

TEST(ScaleInFrontTest, TheWorkspaceFollowsTheType) {
  const QuantizeKernel narrow = ScalerOf(kBf16, kBf16, 1001);
  EXPECT_EQ(LayoutQuantizeWorkspace(narrow, 8).codes_row_stride, 1008);
  EXPECT_EQ(LayoutQuantizeWorkspace(narrow, 8).bytes, 16128u);
  const QuantizeKernel wide = ScalerOf(kF32, kF32, 1001);
  EXPECT_EQ(LayoutQuantizeWorkspace(wide, 8).codes_row_stride, 1004);
  EXPECT_EQ(LayoutQuantizeWorkspace(wide, 8).bytes, 32256u) << "a multiple of 256";
  EXPECT_EQ(QuantizeRowsAtATime(narrow, 1000, 1008 * 2 * 10), 10);
  EXPECT_EQ(QuantizeRowsAtATime(wide, 1000, 1004 * 4 * 10), 10);
}

// ---- whole requests ----

class InputScalePathTest : public QuantizePath {
 protected:
  explicit InputScalePathTest(int cc_major = 8) : QuantizePath({.cc_major = cc_major}, 29) { Open(); }

  void See(const cuda::FakeLaunch& launch, const QuantizeArgs&) override {
    ++multiplied_;
    overlaps_ = launch.overlaps_previous;
  }

  StandardTensor Tensor(const QuantSpec& spec) {
    return WithInputScale(RandomTensor(spec, {1, 70, 300}, random_), random_);
  }

  int multiplied_ = 0;
  bool overlaps_ = false;
};

constexpr QuantSpec kInt4{.weight = IntegerFormat(4), .scale = kFloat16, .scale_block_k = 64};
using Int4Gemm = HostConfig<IntegerFormat(4), kFloat16>;

TEST_F(InputScalePathTest, XOfEveryTypeIsMultiplied) {
  const StandardTensor tensor = Tensor(kInt4);
  DeviceRunner runner(*device_);
  const auto layer = runner.Load(tensor);
  ASSERT_NE(layer, nullptr);
  GemmCase c{.m = 9, .x_type = kBFloat16, .x_gap = 3, .shift = 1};
  UseKernels<Scaler<kBf16>, Int4Gemm>();
  const GemmRun run = RunScaledCase(runner, tensor, layer, c, random_);
  EXPECT_EQ(run.report.activation_used, kBFloat16);
  EXPECT_EQ(run.report.reason, "");
  EXPECT_FALSE(overlaps_) << "before SM90 no kernel is launched so";
  c.x_type = kFloat16;
  UseKernels<Scaler<kF16>, Int4Gemm>();
  RunScaledCase(runner, tensor, layer, c, random_);
  c.x_type = kFloat32;
  UseKernels<Scaler<kF32>, Int4Gemm>();
  RunScaledCase(runner, tensor, layer, c, random_);
  c.x_scale_columns = 1;
  c.x_type = kInt8;
  UseKernels<Scaler<kI8, kF32>, Int4Gemm>();
  RunScaledCase(runner, tensor, layer, c, random_);
  c.x_type = kFloat8E4M3;
  UseKernels<Scaler<kE4M3, kF32>, Int4Gemm>();
  const GemmRun last = RunScaledCase(runner, tensor, layer, c, random_);
  EXPECT_EQ(last.report.activation_used, kFloat8E4M3);
  EXPECT_EQ(multiplied_, 5);
}

TEST_F(InputScalePathTest, LargeRequestsRunInChunks) {
  Open(/*workspace_bytes=*/304 * 2 * 16);
  UseKernels<Scaler<kBf16>, Int4Gemm>();
  const StandardTensor tensor = Tensor(kInt4);
  DeviceRunner runner(*device_);
  RunScaledCase(runner, tensor, runner.Load(tensor), {.m = 100, .x_type = kBFloat16}, random_);
  EXPECT_EQ(multiplied_, 7);
}

TEST_F(InputScalePathTest, NoRowsLaunchNothing) {
  const StandardTensor tensor = Tensor(kInt4);
  DeviceRunner runner(*device_);
  const auto layer = runner.Load(tensor);
  const int before = fake_.Calls("cuLaunchKernelEx");
  RunScaledCase(runner, tensor, layer, {.m = 0, .x_type = kBFloat16}, random_);
  EXPECT_EQ(fake_.Calls("cuLaunchKernelEx"), before);
}

TEST_F(InputScalePathTest, ASecondRequestAllocatesNothing) {
  UseKernels<Scaler<kBf16>, Int4Gemm>();
  const StandardTensor tensor = Tensor(kInt4);
  DeviceRunner runner(*device_);
  const auto layer = runner.Load(tensor);
  GemmCall call;
  call.layer = layer;
  const DeviceMatrix x = runner.Upload(RandomMatrix(kBFloat16, 5, 300, random_));
  const DeviceMatrix y = runner.Upload(PoisonedMatrix(kBFloat16, 5, 70));
  call.x = x.view;
  call.y = y.view;
  ASSERT_TRUE(device_->RunGemm(runner.stream(), call).ok());
  const int before = fake_.Calls("cuMemAlloc");
  ASSERT_TRUE(device_->RunGemm(runner.stream(), call).ok());
  EXPECT_EQ(fake_.Calls("cuMemAlloc"), before);
}

TEST_F(InputScalePathTest, ExplainNamesTheKernelInFront) {
  DeviceRunner runner(*device_);
  const auto layer = runner.Load(Tensor(kInt4));
  const auto explained = device_->Explain(*layer, 1);
  ASSERT_TRUE(explained.ok()) << explained.status();
  EXPECT_THAT(explained->choice.reason, HasSubstr("multiplied by the input scale first"));
  EXPECT_THAT(explained->config, ::testing::Contains(std::pair<std::string, std::string>(
                                     "multiplier", "quantize_bf16_bf16_scaled_64")));
}

// The layer's own static scale belongs to products: x of 16 bits that is not quantized has none.
TEST_F(InputScalePathTest, DeclaredActivationsLeaveNarrowXAloneAndMultiplyWideX) {
  QuantSpec spec = kInt4;
  spec.activation = kFloat8E4M3;
  spec.activation_scale = ActivationScaleKind::kStaticTensor;
  UseKernels<Scaler<kBf16>, Int4Gemm>();
  const StandardTensor tensor = Tensor(spec);
  DeviceRunner runner(*device_);
  const auto layer = runner.Load(tensor);
  const GemmRun run = RunScaledCase(runner, tensor, layer, {.m = 5, .x_type = kBFloat16}, random_);
  EXPECT_EQ(run.report.activation_used, kBFloat16);
  EXPECT_THAT(run.report.reason, HasSubstr("used as it is: the generic kernel serves the layer"));
  EXPECT_EQ(multiplied_, 1);
  RunGemmCase(runner, tensor, layer, {.m = 5, .x_type = kFloat8E4M3}, random_);
  EXPECT_EQ(multiplied_, 1);
}

// Activations that QuantSpec cannot say are not quantized, whatever the spec says beside.
TEST_F(InputScalePathTest, EncodedActivationsAreMultipliedOnly) {
  StandardTensor tensor = Tensor(kInt4);
  tensor.encoding = {.format = kInt8,
                     .scale = ActivationScaleKind::kDynamicToken,
                     .group = 0,
                     .zero_points = true,
                     .group_scale = kNoFormat};
  ASSERT_TRUE(Validate(tensor).ok()) << Validate(tensor);
  UseKernels<Scaler<kBf16>, Int4Gemm>();
  DeviceRunner runner(*device_);
  const auto layer = runner.Load(tensor);
  RunScaledCase(runner, tensor, layer, {.m = 5, .x_type = kBFloat16}, random_);
  EXPECT_EQ(multiplied_, 1);
  RunGemmCase(runner, tensor, layer, {.m = 5, .x_type = kInt8, .x_scale_columns = 1}, random_);
  EXPECT_EQ(multiplied_, 1) << "x of 8 bits was multiplied before";
}

// With kernels for 8-bit x: one launch multiplies and quantizes.
class QuantizedInputScaleTest : public InputScalePathTest {
 protected:
  QuantizedInputScaleTest() : InputScalePathTest(9) {}

  QuantSpec Spec(ActivationScaleKind kind) {
    QuantSpec spec;
    spec.weight = kFloat8E4M3;
    spec.scale = kFloat32;
    spec.activation = kFloat8E4M3;
    spec.activation_scale = kind;
    return spec;
  }
  // Batch-invariant requests take the generic kernel, which the fake driver can run.
  void ExpectQuantized(const StandardTensor& tensor, const NumberFormat& x_type) {
    DeviceRunner runner(*device_);
    const GemmCase c{.m = 9, .x_type = x_type, .x_gap = 3, .shift = 1, .batch_invariant = true};
    const GemmRun run = RunScaledCase(runner, tensor, runner.Load(tensor), c, random_);
    EXPECT_EQ(run.report.activation_used, kFloat8E4M3);
    EXPECT_EQ(run.report.reason, "");
    EXPECT_TRUE(overlaps_);
  }
  using Gemm =
      HostConfig<kFloat8E4M3, kFloat32, ZeroPointKind::kNone,
                 RowMapping::kDense, 2, CodeOrder::kPackedForFloat8>;
};

TEST_F(QuantizedInputScaleTest, ProductsAreQuantizedByTheStaticScale) {
  UseKernels<Scaler<kBf16, kE4M3, QuantizeMode::kStaticTensor>, Gemm>();
  ExpectQuantized(Tensor(Spec(ActivationScaleKind::kStaticTensor)), kBFloat16);
  EXPECT_EQ(multiplied_, 1);
}

TEST_F(QuantizedInputScaleTest, ProductsGiveTheScaleOfTheirRow) {
  UseKernels<Scaler<kF32, kE4M3, QuantizeMode::kDynamicToken>, Gemm>();
  ExpectQuantized(Tensor(Spec(ActivationScaleKind::kDynamicToken)), kFloat32);
  EXPECT_EQ(multiplied_, 1);
}

}  // namespace
}  // namespace gemmd::testing
