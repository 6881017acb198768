// Requests with hadamard_block on the fake driver, whose kernels run on the CPU: what is compiled for them
// and when, and what they give.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/base/status.h"
#include "kernels/jit/kernel_cache.h"
#include "kernels/layer_programs.h"
#include "tests/kernels/device/host_quantize.h"
#include "tests/kernels/hadamard_runner.h"
#include "tests/kernels/launch/fake_kernels.h"
#include "tests/kernels/launch/quantize_path.h"

namespace gemmd::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kBlock = 64;
constexpr int64_t kColumns = 320;

template <ElementType kX, ElementType kCode, QuantizeMode kMode, bool kHasFactors = false>
using Transformer =
    HostQuantizeConfig<kX, kCode, kMode, 128, InputActivation::kNone, kBlock, 64, kHasFactors>;

using E4M3Gemm = HostConfig<kFloat8E4M3, kFloat32, ZeroPointKind::kNone,
                            RowMapping::kDense, 2, CodeOrder::kPackedForFloat8>;
using Int4Gemm = HostConfig<IntegerFormat(4), kFloat16>;
constexpr QuantSpec kInt4Spec{.weight = IntegerFormat(4), .scale = kFloat16, .scale_block_k = 64};

class HadamardPathTest : public QuantizePath {
 protected:
  explicit HadamardPathTest(int cc_major = 9) : QuantizePath({.cc_major = cc_major}, 31) { Open(); }

  void See(const cuda::FakeLaunch&, const QuantizeArgs&) override { ++transformed_; }

  StandardTensor E4M3Tensor() {
    const QuantSpec spec{.weight = kFloat8E4M3,
                         .scale = kFloat32,
                         .activation = kFloat8E4M3,
                         .activation_scale = ActivationScaleKind::kDynamicToken};
    return RandomTensor(spec, {1, 70, kColumns}, random_);
  }

  // A request of 3 rows.
  absl::StatusOr<CallReport> Ask(DeviceRunner& runner, const std::shared_ptr<DeviceLayer>& layer, int64_t block,
                                 int64_t m = 3) {
    const DeviceMatrix x = runner.Upload(RandomMatrix(kBFloat16, m, layer->shape().k, random_));
    const DeviceMatrix y = runner.Upload(PoisonedMatrix(kBFloat16, m, layer->shape().n));
    GemmCall call;
    call.layer = layer;
    call.x = x.view;
    call.y = y.view;
    call.batch_invariant = true;  // the generic kernel, which the fake driver can run
    call.hadamard_block = block;
    return device_->RunGemm(runner.stream(), call);
  }

  int transformed_ = 0;
};

class OldGpuHadamardPathTest : public HadamardPathTest {
 protected:
  OldGpuHadamardPathTest() : HadamardPathTest(8) {}
};

TEST_F(HadamardPathTest, XIsTransformedInTheLaunchThatQuantizesIt) {
  UseKernels<Transformer<kBf16, kE4M3, QuantizeMode::kDynamicToken>, E4M3Gemm>();
  const StandardTensor tensor = E4M3Tensor();
  DeviceRunner runner(*device_);
  const auto layer = runner.Load(tensor);
  ASSERT_NE(layer, nullptr);
  const GemmCase c{.m = 9, .x_type = kBFloat16, .x_gap = 3, .shift = 1, .batch_invariant = true};
  const GemmRun run = RunHadamardCase(runner, tensor, layer, c, kBlock, random_);
  EXPECT_EQ(run.report.activation_used, kFloat8E4M3);
  EXPECT_EQ(transformed_, 1);
}

TEST_F(HadamardPathTest, AnInputScaleComesBeforeTheTransform) {
  UseKernels<Transformer<kF16, kE4M3, QuantizeMode::kDynamicToken, true>, E4M3Gemm>();
  const StandardTensor tensor = WithInputScale(E4M3Tensor(), random_);
  DeviceRunner runner(*device_);
  const auto layer = runner.Load(tensor);
  ASSERT_NE(layer, nullptr);
  RunHadamardCase(runner, tensor, layer, {.m = 5, .x_type = kFloat16, .batch_invariant = true}, kBlock, random_);
  EXPECT_EQ(transformed_, 1);
}

TEST_F(OldGpuHadamardPathTest, XThatIsNotQuantizedIsRoundedToItsType) {
  UseKernels<Transformer<kBf16, kBf16, QuantizeMode::kNone>, Int4Gemm>();
  const StandardTensor tensor = RandomTensor(kInt4Spec, {1, 70, kColumns}, random_);
  DeviceRunner runner(*device_);
  const auto layer = runner.Load(tensor);
  ASSERT_NE(layer, nullptr);
  const GemmRun run =
      RunHadamardCase(runner, tensor, layer, {.m = 9, .x_type = kBFloat16, .x_gap = 3}, kBlock, random_);
  EXPECT_EQ(run.report.activation_used, kBFloat16);
  UseKernels<Transformer<kF32, kF32, QuantizeMode::kNone>, Int4Gemm>();
  RunHadamardCase(runner, tensor, layer, {.m = 3, .x_type = kFloat32}, kBlock, random_);
  EXPECT_EQ(transformed_, 2);
}

TEST_F(HadamardPathTest, TheFirstRequestWithABlockStartsTheCompilationAndIsRefused) {
  UseKernels<Transformer<kBf16, kE4M3, QuantizeMode::kDynamicToken>, E4M3Gemm>();
  DeviceRunner runner(*device_);
  const auto layer = runner.Load(E4M3Tensor());
  ASSERT_NE(layer, nullptr);
  compiler_.Hold("kHadamardBlock = 64;");
  for (int i = 0; i < 3; ++i) {
    const absl::Status status = Ask(runner, layer, kBlock).status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_EQ(ReasonOf(status), "KERNEL_COMPILING");
    EXPECT_THAT(std::string(status.message()), HasSubstr("quantize_bf16_e4m3_h64_token_64"));
  }
  EXPECT_EQ(transformed_, 0);
  compiler_.Release();
  ASSERT_TRUE(Eventually([&] { return Ask(runner, layer, kBlock).ok(); }));
  EXPECT_GE(transformed_, 1);
}

TEST_F(HadamardPathTest, ARequestWithoutRowsAsksForTheKernelAheadOfUse) {
  UseKernels<Transformer<kBf16, kE4M3, QuantizeMode::kDynamicToken>, E4M3Gemm>();
  DeviceRunner runner(*device_);
  const auto layer = runner.Load(E4M3Tensor());
  ASSERT_NE(layer, nullptr);
  ASSERT_TRUE(Eventually([&] { return Ask(runner, layer, kBlock, 0).ok(); }));
  EXPECT_EQ(transformed_, 0);
  EXPECT_TRUE(Ask(runner, layer, kBlock).ok()) << "and other layers of this K";
  EXPECT_TRUE(Ask(runner, runner.Load(E4M3Tensor()), kBlock).ok());
}

TEST_F(HadamardPathTest, AKernelThatDoesNotCompileFailsTheRequestAndNoOther) {
  UseKernels<Transformer<kBf16, kE4M3, QuantizeMode::kDynamicToken>, E4M3Gemm>();
  DeviceRunner runner(*device_);
  const auto layer = runner.Load(E4M3Tensor());
  ASSERT_NE(layer, nullptr);
  compiler_.Reject("kHadamardBlock = 64;");
  absl::Status status;
  ASSERT_TRUE(Eventually([&] {
    status = Ask(runner, layer, kBlock).status();
    return !absl::IsUnavailable(status);
  }));
  EXPECT_EQ(ReasonOf(status), "COMPILE_FAILED") << status;
  ASSERT_TRUE(Eventually([&] { return !absl::IsUnavailable(Ask(runner, layer, 32, 0).status()); }));
  EXPECT_TRUE(Ask(runner, layer, 32, 0).ok());
  compiler_.Accept();
  store_->cache()->ForgetFailures();
  EXPECT_TRUE(Eventually([&] { return Ask(runner, layer, kBlock).ok(); }));
}

TEST(HadamardProgramTest, FollowsTheKernelInWhoseLaunchItIs) {
  QuantizeKernel plain;
  plain.x_type = kF16;
  plain.code_type = ElementType::kInt8;
  plain.mode = QuantizeMode::kDynamicGroup;
  plain.multiplies = true;
  plain.k = 4096;
  plain.group = 128;
  const auto program = HadamardProgram(plain, 512, "sm_90a");
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->launch.name, "quantize_f16_int8_scaled_h512_group128_128");
  EXPECT_EQ(program->launch.k, 4096);
  EXPECT_EQ(program->launch.group, 128);
  EXPECT_TRUE(program->launch.multiplies);
  EXPECT_TRUE(program->launch.overlaps_previous);
  EXPECT_EQ(program->launch.slice_columns % 512, 0);
}

TEST(HadamardProgramTest, GroupsThatDoNotFitTheBlockAreRefused) {
  QuantizeKernel plain;
  plain.mode = QuantizeMode::kDynamicGroup;
  plain.k = 960;
  plain.group = 96;
  const absl::Status status = HadamardProgram(plain, 64, "sm_90a").status();
  EXPECT_EQ(ReasonOf(status), "NO_KERNEL") << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("groups of 96 columns and Hadamard blocks of 64"));
}

// Factors by group of columns go into the scales of the weights, and then x times them is not to be had.
TEST_F(HadamardPathTest, AnInputScaleInTheWeightsIsRefusedUnlessItIsOneFactor) {
  const auto load = [&](DeviceRunner& runner, float last) {
    QuantSpec spec = kInt4Spec;
    spec.scale = kFloat32;
    StandardTensor tensor = RandomTensor(spec, {1, 70, kColumns}, random_);
    tensor.has_input_scale = true;
    tensor.input_scale.resize(kColumns * sizeof(float));
    for (int64_t k = 0; k < kColumns; ++k) SetValue<float>(tensor.input_scale, k, k < 256 ? 2 : last);
    return runner.Load(tensor);
  };
  DeviceRunner runner(*device_);
  const absl::Status status = Ask(runner, load(runner, 4), kBlock).status();
  EXPECT_EQ(ReasonOf(status), "UNSUPPORTED_OPTION") << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("input scale in the scales of the weights"));
  EXPECT_TRUE(Eventually([&, layer = load(runner, 2)] { return Ask(runner, layer, kBlock, 0).ok(); }));
}

}  // namespace
}  // namespace gemmd::testing
