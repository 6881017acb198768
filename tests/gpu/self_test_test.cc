// Self-tests on a GPU: every kernel of gemmd passes its own, kernels that are wrong do not.
#include "kernels/self_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/exec/cuda_device.h"
#include "kernels/base/status.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/library.h"
#include "kernels/jit/kernel_cache.h"
#include "kernels/layer_programs.h"
#include "tests/gpu/gpu_fixture.h"

namespace gemmd::testing {
namespace {

using ::testing::HasSubstr;

class SelfTestTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    if (device().description().kind != DeviceKind::kCuda) GTEST_SKIP() << "needs a GPU";
  }

  // The verdict about a kernel whose body is `body`, launched as the generic kernel of int4 weights.
  static absl::Status Test(const std::string& body, const std::string& architecture,
                           int dynamic_shared_bytes = 0) {
    GEMMD_ASSIGN_OR_RETURN(const cuda::DriverTable* const driver, cuda::LoadDriver());
    GEMMD_ASSIGN_OR_RETURN(const cuda::PrimaryContext context,
                           cuda::PrimaryContext::Retain(*driver, 0));
    const cuda::ScopedContext scope(context);
    GEMMD_ASSIGN_OR_RETURN(const auto cache, jit::KernelCache::Open(""));
    const std::string program =
        "#include \"kernels/contract/gemm_args.h\"\nnamespace test {\n"
        "__global__ void Kernel(gemmd::GemmArgs args) {\n"
        "  float* y = static_cast<float*>(args.y);\n"
        "  const long long elements = args.m * args.y_row_stride;\n"
        "  const bool first = blockIdx.x + blockIdx.y + threadIdx.x == 0;\n" +
        body + "\n}\n}\n";
    GEMMD_ASSIGN_OR_RETURN(
        const auto compiled,
        cache->GetOrCompile({program, "test::Kernel", architecture}, absl::InfiniteFuture()));
    GEMMD_ASSIGN_OR_RETURN(const cuda::LoadedLibrary library,
                           cuda::LoadedLibrary::Load(*driver, compiled->cubin));
    const SelfTestSubject subject{.spec = Spec(IntegerFormat(4), kFloat16, 1, 32),
                                  .shape = {1, 64, 512}};
    GEMMD_ASSIGN_OR_RETURN(const LayerPrograms programs,
                           ProgramsOf(subject.spec, subject.shape, architecture));
    GemmKernel kernel = programs.dense->launch;
    kernel.dynamic_shared_bytes = dynamic_shared_bytes;
    GEMMD_ASSIGN_OR_RETURN(kernel.kernel, library.GetKernel(compiled->lowered_name));
    return DeviceSelfTester(*driver, absl::Seconds(2))->Test(kernel, subject);
  }
  absl::Status Test(const std::string& body, int dynamic_shared_bytes = 0) {
    return Test(body, device().description().architecture, dynamic_shared_bytes);
  }
};

// The fixture's device tests what it loads, and returns when everything is there.
TEST_F(SelfTestTest, EveryKernelOfEveryFormatPasses) {
  std::vector<QuantSpec> specs = {
      Spec(IntegerFormat(4), kFloat16, 1, 128), Spec(IntegerFormat(4), kBFloat16, 1, 32),
      Spec(IntegerFormat(4), kFloat16, 1, 0),   Spec(IntegerFormat(3), kFloat16, 1, 100),
      Spec(IntegerFormat(8), kBFloat16, 1, 0),  Spec(kFloat8E4M3, kFloat32, 128, 128),
      Spec(kFloat8E4M3, kBFloat16, 1, 0),       Spec(kFloat4E2M1, kFloat8E8M0, 1, 32),
      Spec(kFloat4E2M1, kFloat8E4M3, 1, 16),    Spec(kFloat8E5M2, kNoFormat, 1, 0),
      Spec(kBFloat16, kNoFormat, 1, 0),         Spec(IntegerFormat(4), kFloat16, 1, 64),
  };
  specs[1].zero_point = ZeroPointKind::kInteger;
  specs[8].secondary_scale = SecondaryScaleKind::kTensor;
  specs[11].has_group_index = true;
  specs.push_back(specs[5]);
  specs.back().activation = kFloat8E4M3;
  specs.back().activation_scale = ActivationScaleKind::kDynamicGroup;
  specs.back().activation_group = 128;
  specs.push_back(specs[4]);
  specs.back().activation = kInt8;
  specs.push_back(specs[0]);
  specs.back().activation = kFloat8E4M3;
  std::vector<StandardTensor> tensors;
  for (const QuantSpec& spec : specs) {
    for (const LayerShape& shape : {LayerShape{1, 200, 640}, {1, 1536, 2048}, {3, 96, 256}}) {
      tensors.push_back(RandomTensor(spec, shape, random_));
    }
  }
  const auto layers = LoadAll(tensors);
  for (size_t i = 0; i < layers.size(); ++i) {
    ASSERT_NE(layers[i], nullptr) << i;
    const SpecialisedKernels kernels = layers[i]->specialised();
    EXPECT_EQ(kernels.ready, kernels.total)
        << i << ": " << device().Explain(*layers[i], 1)->choice.reason;
  }
  EXPECT_GT(device().kernel_counts().self_tests, specs.size());
  EXPECT_EQ(device().kernel_counts().quarantined, 0u);
}

TEST_F(SelfTestTest, KernelThatWritesNothingFails) {
  const absl::Status status = Test("");
  EXPECT_EQ(ReasonOf(status), "SELF_TEST_FAILED") << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("y[0, 0] is nan"));
}

TEST_F(SelfTestTest, KernelThatWritesZerosFails) {
  const absl::Status status = Test("if (first) for (long long i = 0; i < elements; ++i) y[i] = 0;");
  EXPECT_EQ(ReasonOf(status), "SELF_TEST_FAILED") << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(" is 0, expected "));
}

TEST_F(SelfTestTest, LaunchThatTheGpuRefusesFails) {
  const absl::Status status = Test("", /*dynamic_shared_bytes=*/1 << 20);
  EXPECT_EQ(ReasonOf(status), "SELF_TEST_FAILED") << status;
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
}

// Each in a process of its own, which loses its context.
using SelfTestDeathTest = SelfTestTest;

TEST_F(SelfTestDeathTest, KernelThatFaultsOrDoesNotEndLosesTheContextAndIsTold) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string architecture = device().description().architecture;
  const auto verdict = [&](const std::string& body) {
    const absl::Status status = Test(body, architecture);
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    const bool as_expected =
        status.code() == absl::StatusCode::kDataLoss && ReasonOf(status) == "SELF_TEST_FAILED";
    std::_Exit(as_expected ? 0 : 1);  // a stuck GPU would hold up an orderly end
  };
  EXPECT_EXIT(verdict("if (first) *reinterpret_cast<volatile int*>(8) = 1;"),
              ::testing::ExitedWithCode(0), "CUDA_ERROR");
  // It ends by itself: a process that leaves an endless kernel behind may not be able to end.
  EXPECT_EXIT(verdict("if (first) for (int i = 0; i < 6000; ++i) __nanosleep(1000000);"),
              ::testing::ExitedWithCode(0), "did not end within 2s");
}

}  // namespace
}  // namespace gemmd::testing
