// Loading, testing before the first use, and quarantine, with a tester that says what the test wants.
#include "kernels/loaded_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "kernels/base/status.h"
#include "kernels/cuda/context.h"
#include "tests/support/fake_driver.h"

namespace gemmd {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class FakeTester : public SelfTester {
 public:
  absl::Status Test(const GemmKernel& kernel, const SelfTestSubject&) override {
    EXPECT_NE(kernel.kernel, nullptr);
    ++tests;
    return verdict;
  }
  static inline absl::Status verdict;
  static inline int tests = 0;
};

absl::Status Wrong() {
  return Error(absl::StatusCode::kInternal, "SELF_TEST_FAILED", "y[1, 2] is 3, expected 4");
}

jit::CompiledKernel Compiled(char digit = 'a') {
  jit::CompiledKernel kernel;
  kernel.cubin.resize(8);
  kernel.key = std::string(64, digit);
  kernel.lowered_name = "Gemm";
  kernel.architecture = "sm_90a";
  kernel.label = "gemm_test";
  return kernel;
}

class LoadedKernelsTest : public ::testing::Test {
 protected:
  LoadedKernelsTest()
      : context_(*cuda::PrimaryContext::Retain(fake_.table(), 0)), scope_(context_) {
    std::string pattern = (fs::temp_directory_path() / "gemmd_loaded_XXXXXX").string();
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    FakeTester::verdict = absl::OkStatus();
    FakeTester::tests = 0;
    Reopen();
  }
  ~LoadedKernelsTest() override {
    kernels_.reset();
    fs::remove_all(directory_);
  }
  // As a new process of the node.
  void Reopen() {
    kernels_.reset();
    cache_ = std::shared_ptr<jit::KernelCache>(*jit::KernelCache::Open(directory_ / "cache"));
    kernels_ = std::make_unique<LoadedKernels>(
        fake_.table(), cache_, std::make_unique<FakeTester>(),
        [this](const KernelEvent& event) { events_.push_back(event); });
  }
  absl::StatusOr<CUkernel> LoadGemm(const jit::CompiledKernel& compiled = Compiled()) {
    GemmKernel launch;
    launch.name = compiled.label;
    return kernels_->LoadGemm(compiled, launch, {});
  }

  cuda::FakeDriver fake_;
  cuda::PrimaryContext context_;
  cuda::ScopedContext scope_;
  fs::path directory_;
  std::shared_ptr<jit::KernelCache> cache_;
  std::vector<KernelEvent> events_;
  std::unique_ptr<LoadedKernels> kernels_;
};

TEST_F(LoadedKernelsTest, GemmIsTestedOnceThenServes) {
  const auto first = LoadGemm();
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(*LoadGemm(), *first);
  EXPECT_EQ(FakeTester::tests, 1);
  EXPECT_EQ(kernels_->self_tests(), 1u);
  EXPECT_EQ(fake_.Calls("cuLibraryLoadData"), 1);
  ASSERT_TRUE(LoadGemm(Compiled('b')).ok());
  EXPECT_EQ(FakeTester::tests, 2) << "each kernel for itself";
}

TEST_F(LoadedKernelsTest, OtherKernelsAreNotTested) {
  ASSERT_TRUE(kernels_->Load(Compiled()).ok());
  EXPECT_EQ(FakeTester::tests, 0);
}

TEST_F(LoadedKernelsTest, FailedKernelIsQuarantinedReportedAndNotRunAgain) {
  FakeTester::verdict = Wrong();
  const absl::Status first = LoadGemm().status();
  EXPECT_EQ(ReasonOf(first), "KERNEL_QUARANTINED");
  EXPECT_THAT(std::string(first.message()), HasSubstr("gemm_test failed its self-test: y[1, 2]"));
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].kind, KernelEvent::Kind::kQuarantined);
  EXPECT_EQ(events_[0].kernel, "gemm_test");
  EXPECT_EQ(kernels_->quarantined(), 1u);
  FakeTester::verdict = absl::OkStatus();
  EXPECT_EQ(LoadGemm().status(), first);
  EXPECT_EQ(FakeTester::tests, 1);
  EXPECT_EQ(fake_.Calls("cuLibraryUnload"), 1);
}

TEST_F(LoadedKernelsTest, QuarantineOutlivesTheProcessAndEndsWithAPurge) {
  FakeTester::verdict = Wrong();
  EXPECT_FALSE(LoadGemm().ok());
  FakeTester::verdict = absl::OkStatus();
  Reopen();
  EXPECT_EQ(ReasonOf(LoadGemm().status()), "KERNEL_QUARANTINED");
  EXPECT_EQ(FakeTester::tests, 1);
  ASSERT_TRUE(cache_->disk()->DropQuarantine(Compiled().key).ok());
  cache_->ForgetFailures();
  EXPECT_TRUE(LoadGemm().ok());
  EXPECT_EQ(FakeTester::tests, 2);
}

TEST_F(LoadedKernelsTest, KernelThatTakesTheContextAlongIsQuarantinedForTheNextProcess) {
  FakeTester::verdict =
      Error(absl::StatusCode::kDataLoss, "SELF_TEST_FAILED", "CUDA_ERROR_ILLEGAL_ADDRESS");
  const absl::Status lost = LoadGemm().status();
  EXPECT_EQ(lost.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReasonOf(lost), "CONTEXT_LOST");
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].status.code(), absl::StatusCode::kDataLoss);
  FakeTester::verdict = absl::OkStatus();
  Reopen();
  EXPECT_EQ(ReasonOf(LoadGemm().status()), "KERNEL_QUARANTINED");
  EXPECT_EQ(FakeTester::tests, 1);
}

TEST_F(LoadedKernelsTest, KernelThatCouldNotBeTestedIsNeitherUsedNorCondemned) {
  FakeTester::verdict = Error(absl::StatusCode::kResourceExhausted, "GPU_OOM", "full");
  EXPECT_EQ(ReasonOf(LoadGemm().status()), "GPU_OOM");
  EXPECT_TRUE(events_.empty());
  EXPECT_EQ(kernels_->quarantined(), 0u);
  FakeTester::verdict = absl::OkStatus();
  EXPECT_TRUE(LoadGemm().ok());
  EXPECT_EQ(FakeTester::tests, 2);
}

TEST_F(LoadedKernelsTest, CubinThatTheDriverRefusesIsNotCondemned) {
  fake_.Fail("cuLibraryLoadData", CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  EXPECT_FALSE(LoadGemm().ok());
  EXPECT_EQ(FakeTester::tests, 0);
  EXPECT_TRUE(LoadGemm().ok());
}

}  // namespace
}  // namespace gemmd
