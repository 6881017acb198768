// Failures that are remembered: what they say, and what goes before them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>

#include "kernels/base/status.h"
#include "kernels/jit/cache_entry.h"
#include "kernels/jit/kernel_cache.h"
#include "tests/kernels/fake_compiler.h"

namespace gemmd::jit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class RememberedFailureTest : public ::testing::Test {
 protected:
  // A daemon of the node: they share the directory, and nothing else.
  std::unique_ptr<KernelCache> Open() {
    return *KernelCache::Open({.directory = compiler_.cache_directory(),
                               .helper = testing::FakeCompiler::Helper(),
                               .workers = 2});
  }
  static KernelSource Source(const std::string& program) { return {program, "Kernel", "sm_90a"}; }
  static absl::StatusOr<SharedKernel> Get(KernelCache& cache, const std::string& program = "program") {
    return cache.GetOrCompile(Source(program), absl::InfiniteFuture());
  }
  static absl::StatusOr<SharedKernel> Ask(KernelCache& cache) {
    std::promise<absl::StatusOr<SharedKernel>> answer;
    cache.Ask(Source("program"), CompilePriority::kPrewarm,
              [&answer](const absl::StatusOr<SharedKernel>& kernel) { answer.set_value(kernel); });
    return answer.get_future().get();
  }
  static std::string Key(KernelCache& cache) { return KernelKey(Source("program"), *cache.Compiler()); }
  // Rejected once; it would not be again.
  std::unique_ptr<KernelCache> OpenAndFail() {
    auto cache = Open();
    compiler_.Reject("program");
    EXPECT_EQ(ReasonOf(Get(*cache).status()), "COMPILE_FAILED");
    compiler_.Accept();
    return cache;
  }

  testing::FakeCompiler compiler_;
};

TEST_F(RememberedFailureTest, ARejectionSaysThatItIsRememberedAndWhatForgetsIt) {
  const auto cache = Open();
  compiler_.Reject("program");
  const absl::Status first = Get(*cache).status();
  EXPECT_THAT(std::string(first.message()), Not(HasSubstr("remembered")));
  EXPECT_FALSE(IsRemembered(first));
  const absl::Status again = Get(*cache).status();
  EXPECT_EQ(again.code(), first.code());
  EXPECT_EQ(ReasonOf(again), "COMPILE_FAILED");
  EXPECT_TRUE(IsRemembered(again));
  const std::string purge = "'gemmctl cache purge --key " + Key(*cache).substr(0, 12) + "' forgets it";
  EXPECT_THAT(std::string(again.message()),
              AllOf(StartsWith("remembered while the daemon runs"), HasSubstr(purge),
                    HasSubstr(std::string(first.message()))));
  EXPECT_EQ(cache->stats().failed_compilations, 1u);
}

TEST_F(RememberedFailureTest, ADeathSaysUntilWhenItIsRemembered) {
  const auto cache = Open();
  const absl::Status first = Get(*cache, "CRASH").status();
  const absl::Status again = Get(*cache, "CRASH").status();
  EXPECT_EQ(ReasonOf(again), "COMPILER_CRASHED");
  EXPECT_THAT(std::string(again.message()),
              AllOf(StartsWith("remembered until 20"), HasSubstr(" UTC ('gemmctl cache purge --key "),
                    HasSubstr(std::string(first.message()))));
  EXPECT_EQ(cache->stats().failed_compilations, 1u);
}

TEST_F(RememberedFailureTest, WhatAnotherDaemonPublishedGoesBeforeIt) {
  const auto cache = OpenAndFail();
  EXPECT_TRUE(IsRemembered(Get(*cache).status()));
  ASSERT_TRUE(Get(*Open()).ok());
  const auto kernel = Get(*cache);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ(cache->stats().disk_hits, 1u);
  EXPECT_EQ(cache->stats().failed_compilations, 1u);
}

TEST_F(RememberedFailureTest, WhatAnotherDaemonPublishedGoesBeforeItForThoseWhoDoNotWaitToo) {
  const auto cache = OpenAndFail();
  EXPECT_TRUE(IsRemembered(Ask(*cache).status()));
  ASSERT_TRUE(Get(*Open()).ok());
  const auto kernel = Ask(*cache);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ(cache->stats().failed_compilations, 1u);
}

TEST_F(RememberedFailureTest, AKernelThatWasFoundIsNoFailureWhenItIsGoneAgain) {
  const auto cache = OpenAndFail();
  ASSERT_TRUE(Get(*Open()).ok());
  ASSERT_TRUE(cache->GetOrCompile(Source("program"), {.priority = CompilePriority::kPrewarm}).ok());
  ASSERT_TRUE(cache->disk()->Drop(Key(*cache)).ok());
  EXPECT_TRUE(Get(*cache).ok());
}

TEST_F(RememberedFailureTest, WhatIsNoEntryDoesNot) {
  const auto cache = OpenAndFail();
  std::ofstream(compiler_.cache_directory() / (Key(*cache) + ".kernel")) << "no entry";
  EXPECT_TRUE(IsRemembered(Get(*cache).status()));
}

TEST_F(RememberedFailureTest, AnImportForgetsThoseOfWhatItBrings) {
  const auto cache = OpenAndFail();
  const auto elsewhere = *KernelCache::Open({.helper = testing::FakeCompiler::Helper()});
  const auto kernel = Get(*elsewhere);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  ASSERT_TRUE(cache->ImportEntry((*kernel)->key, EncodeEntry(**kernel)).ok());
  ASSERT_TRUE(cache->disk()->Drop((*kernel)->key).ok());
  EXPECT_TRUE(Get(*cache).ok());
}

}  // namespace
}  // namespace gemmd::jit
