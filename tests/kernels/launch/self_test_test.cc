// The self-test on the fake driver: kernels that are right, wrong in one way each, refused, and stuck.
#include "kernels/self_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/clock.h"
#include "kernels/base/status.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/library.h"
#include "kernels/layer_programs.h"
#include "tests/kernels/launch/fake_kernels.h"

namespace gemmd::testing {
namespace {

using cuda::FakeDriver;
using ::testing::HasSubstr;

using Dense = HostConfig<IntegerFormat(4), kFloat16, ZeroPointKind::kInteger>;
using Indexed = HostConfig<IntegerFormat(4), kFloat16, ZeroPointKind::kInteger, RowMapping::kIndexed>;

template <RowMapping kRows>
using PackedOf =
    HostConfig<IntegerFormat(4), kFloat16, ZeroPointKind::kInteger, kRows, 2, CodeOrder::kPackedForWide>;

QuantSpec TestedSpec() {
  QuantSpec spec;
  spec.weight = IntegerFormat(4);
  spec.scale = kFloat16;
  spec.scale_block_k = 32;
  spec.zero_point = ZeroPointKind::kInteger;
  spec.bias = kFloat16;
  return spec;
}

class SelfTestTest : public ::testing::Test {
 protected:
  SelfTestTest()
      : context_(*cuda::PrimaryContext::Retain(fake_.table(), 0)),
        scope_(context_),
        library_(*cuda::LoadedLibrary::Load(fake_.table(), std::vector<std::byte>(4))),
        programs_(*ProgramsOf(TestedSpec(), subject_.shape, "sm_80")) {}

  absl::Status Test(GemmKernel kernel, absl::Duration limit = absl::Seconds(10)) {
    kernel.kernel = *library_.GetKernel("Gemm");
    return DeviceSelfTester(fake_.table(), limit)->Test(kernel, subject_);
  }
  // The right kernel, whose result `spoil` changes.
  absl::Status TestSpoilt(const std::function<void(const GemmArgs&)>& spoil) {
    fake_.OnLaunch([spoil](const cuda::FakeLaunch& launch) {
      const CUresult result = RunFakeKernel<Dense>(launch);
      spoil(*static_cast<const GemmArgs*>(launch.params[0]));
      return result;
    });
    return Test(programs_.dense->launch);
  }
  static float* Y(const GemmArgs& args) { return static_cast<float*>(args.y); }

  SelfTestSubject subject_{.spec = TestedSpec(), .shape = {1, 64, 75}};
  FakeDriver fake_{{cuda::FakeGpu{.cc_major = 8}}};
  cuda::PrimaryContext context_;
  cuda::ScopedContext scope_;
  cuda::LoadedLibrary library_;
  LayerPrograms programs_;
};

TEST_F(SelfTestTest, RightKernelsPass) {
  fake_.OnLaunch(&RunFakeKernel<Dense>);
  absl::Status status = Test(programs_.dense->launch);
  EXPECT_TRUE(status.ok()) << status;
  fake_.OnLaunch(&RunFakeKernel<Indexed>);
  status = Test(programs_.indexed.launch);
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(SelfTestTest, RightKernelsOfPackedCodesPass) {
  subject_.has_packed_codes = true;
  fake_.OnLaunch(&RunFakeKernel<PackedOf<RowMapping::kDense>>);
  absl::Status status = Test(programs_.dense->launch);
  EXPECT_TRUE(status.ok()) << status;
  fake_.OnLaunch(&RunFakeKernel<PackedOf<RowMapping::kIndexed>>);
  status = Test(programs_.indexed.launch);
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(SelfTestTest, OneWrongElementFailsAndIsNamed) {
  const absl::Status status = TestSpoilt([](const GemmArgs& args) {
    Y(args)[args.m * args.y_row_stride - 1] += 1;  // the last one
  });
  EXPECT_EQ(ReasonOf(status), "SELF_TEST_FAILED");
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("y[60, 87] is "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("1 of 5368 elements are wrong"));
}

// What an indexing fault does: tiles, rows, columns or experts in each other's place.
TEST_F(SelfTestTest, ExchangedElementsShow) {
  const std::vector<std::function<void(const GemmArgs&)>> faults = {
      [](const GemmArgs& args) { std::swap(Y(args)[0], Y(args)[8]); },
      [](const GemmArgs& args) { std::swap(Y(args)[3], Y(args)[3 + 64]); },
      [](const GemmArgs& args) {
        std::swap_ranges(Y(args), Y(args) + 88, Y(args) + 16 * args.y_row_stride);
      },
      [](const GemmArgs& args) {
        std::swap_ranges(Y(args), Y(args) + 88, Y(args) + 32 * args.y_row_stride);
      },
  };
  for (size_t i = 0; i < faults.size(); ++i) {
    EXPECT_EQ(ReasonOf(TestSpoilt(faults[i])), "SELF_TEST_FAILED") << i;
  }
}

TEST_F(SelfTestTest, ElementThatIsNotWrittenFails) {
  const absl::Status status =
      TestSpoilt([](const GemmArgs& args) { std::memset(Y(args) + 5, 0xff, 4); });
  EXPECT_THAT(std::string(status.message()), HasSubstr("nan"));
}

TEST_F(SelfTestTest, WritesOutsideOfYFail) {
  EXPECT_THAT(std::string(TestSpoilt([](const GemmArgs& args) {
                            Y(args)[-1] = 0;
                          }).message()),
              HasSubstr("outside of y"));
  EXPECT_THAT(std::string(TestSpoilt([](const GemmArgs& args) {
                            Y(args)[args.m * args.y_row_stride + 100] = 0;
                          }).message()),
              HasSubstr("outside of y"));
}

TEST_F(SelfTestTest, KernelsThatCopyXByTensorMapAreTestedWithoutOneTooAndRound) {
  std::vector<int64_t> strides;
  std::vector<ElementType> y_types;
  bool spoil = false;
  fake_.OnLaunch([&](const cuda::FakeLaunch& launch) {
    const auto& args = *static_cast<const GemmArgs*>(launch.params[0]);
    strides.push_back(args.x_row_stride);
    y_types.push_back(args.y_type);
    const CUresult result = RunFakeKernel<Dense>(launch);
    if (spoil && strides.size() == 3) Y(args)[args.weights.n] = 0;  // between rows
    return result;
  });
  GemmKernel kernel = programs_.dense->launch;
  kernel.x_box_rows = 8;
  EXPECT_TRUE(Test(kernel).ok());
  EXPECT_EQ(strides, (std::vector<int64_t>{75, 75, 76}));
  EXPECT_EQ(y_types, (std::vector<ElementType>{ElementType::kFloat32, ElementType::kBFloat16,
                                               ElementType::kFloat32}));
  strides.clear();
  spoil = true;
  EXPECT_THAT(std::string(Test(kernel).message()), HasSubstr("outside of y"));
}

TEST_F(SelfTestTest, KernelThatIgnoresScalesOrZeroPointsFails) {
  fake_.OnLaunch(&RunFakeKernel<HostConfig<IntegerFormat(4), kFloat16>>);
  EXPECT_EQ(ReasonOf(Test(programs_.dense->launch)), "SELF_TEST_FAILED");
  fake_.OnLaunch(&RunFakeKernel<HostConfig<IntegerFormat(4), kNoFormat, ZeroPointKind::kInteger>>);
  EXPECT_EQ(ReasonOf(Test(programs_.dense->launch)), "SELF_TEST_FAILED");
}

TEST_F(SelfTestTest, RefusedLaunchIsAVerdict) {
  fake_.Fail("cuLaunchKernelEx", CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  const absl::Status status = Test(programs_.dense->launch);
  EXPECT_EQ(ReasonOf(status), "SELF_TEST_FAILED");
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
}

TEST_F(SelfTestTest, FaultOfTheKernelIsAVerdictAndTheContextIsLost) {
  fake_.Fail("cuStreamQuery", CUDA_ERROR_ILLEGAL_ADDRESS);
  const absl::Status status = Test(programs_.dense->launch);
  EXPECT_EQ(ReasonOf(status), "SELF_TEST_FAILED");
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
}

TEST_F(SelfTestTest, KernelThatDoesNotEndIsAVerdict) {
  fake_.Fail("cuStreamQuery", CUDA_ERROR_NOT_READY, 0, 1 << 30);
  const absl::Status status = Test(programs_.dense->launch, absl::Milliseconds(50));
  EXPECT_EQ(ReasonOf(status), "SELF_TEST_FAILED");
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("did not end within 50ms"));
}

TEST_F(SelfTestTest, WhatFailsBeforeTheLaunchIsNoVerdict) {
  fake_.OnLaunch(&RunFakeKernel<Dense>);
  fake_.Fail("cuMemAlloc", CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(ReasonOf(Test(programs_.dense->launch)), "GPU_OOM");
  fake_.Fail("cuStreamSynchronize", CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(ReasonOf(Test(programs_.dense->launch)), "CONTEXT_LOST") << "another kernel's fault";
  fake_.ClearFailures();
  EXPECT_TRUE(Test(programs_.dense->launch).ok());
}

}  // namespace
}  // namespace gemmd::testing
