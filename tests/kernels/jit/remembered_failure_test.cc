// Failures that are remembered: what they say, and what goes before them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
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

// After a crash no helper is alive: the next one loads what NVRTC is then.
class ReplacedCompilerTest : public RememberedFailureTest {
 protected:
  // Each start of a helper is a line of a file.
  std::unique_ptr<KernelCache> OpenCounted() {
    const std::string command = "echo >> '" + Starts() + "'; exec '" GEMMD_CACHE_PROBE "' helper";
    return *KernelCache::Open({.helper = {"/bin/sh", "-c", command}, .workers = 2});
  }
  std::string Starts() const { return compiler_.cache_directory().string() + "-starts"; }
  int CountStarts() const {
    std::ifstream file(Starts());
    int starts = 0;
    for (std::string line; std::getline(file, line);) ++starts;
    return starts;
  }
  static void Replace(const char* version) { setenv("FAKE_NVRTC_VERSION", version, 1); }
  static std::string Version(const KernelCache& cache) { return cache.LastCompiler().name.substr(0, 4); }
};

TEST_F(ReplacedCompilerTest, ItsFailuresCountNoMore) {
  const auto cache = OpenCounted();
  ASSERT_FALSE(Get(*cache, "REJECT").ok());
  ASSERT_FALSE(Get(*cache, "CRASH").ok());
  Replace("13.5");
  const absl::Status rejected = Get(*cache, "REJECT").status();
  EXPECT_EQ(ReasonOf(rejected), "COMPILE_FAILED");
  EXPECT_FALSE(IsRemembered(rejected)) << rejected;
  EXPECT_EQ(Version(*cache), "13.5");
  EXPECT_EQ(cache->stats().failed_compilations, 3u);
}

TEST_F(ReplacedCompilerTest, WhoDoesNotWaitHasTheNewOneAtTheNextRequest) {
  const auto cache = OpenCounted();
  compiler_.Reject("program");
  ASSERT_FALSE(Get(*cache).ok());
  ASSERT_FALSE(Get(*cache, "CRASH").ok());
  compiler_.Accept();
  Replace("13.5");
  EXPECT_TRUE(IsRemembered(Ask(*cache).status()));
  EXPECT_TRUE(testing::Eventually([&] { return Version(*cache) == "13.5"; }));
  EXPECT_TRUE(Ask(*cache).ok());
}

TEST_F(ReplacedCompilerTest, WhoHasNoTimeLeavesTheLookToAWorker) {
  const auto cache = OpenCounted();
  ASSERT_FALSE(Get(*cache, "CRASH").ok());
  Replace("13.5");
  EXPECT_TRUE(IsRemembered(cache->GetOrCompile(Source("CRASH"), absl::InfinitePast()).status()));
  EXPECT_TRUE(testing::Eventually([&] { return Version(*cache) == "13.5"; }));
}

TEST_F(ReplacedCompilerTest, TheOneThatIsStillThereIsLookedAtOnceForManyRequests) {
  const auto cache = OpenCounted();
  ASSERT_FALSE(Get(*cache, "CRASH").ok());
  EXPECT_EQ(CountStarts(), 1);
  std::vector<std::thread> threads;
  std::atomic<int> remembered{0};
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 5; ++j) remembered += IsRemembered(Get(*cache, "CRASH").status());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(remembered, 40);
  EXPECT_EQ(CountStarts(), 2);
}

TEST_F(ReplacedCompilerTest, AHelperOfTheOldOneThatWorksMeanwhileEndsAfterwards) {
  const auto cache = OpenCounted();
  compiler_.Hold("slow");
  std::thread slow([&] { EXPECT_TRUE(Get(*cache, "slow").ok()); });
  EXPECT_TRUE(testing::Eventually([&] { return cache->stats().running == 1; }));
  ASSERT_FALSE(Get(*cache, "CRASH").ok());
  Replace("13.5");
  (void)Get(*cache, "CRASH");
  EXPECT_EQ(Version(*cache), "13.5");
  compiler_.Release();
  slow.join();
  EXPECT_EQ(Version(*cache), "13.5");
  const auto kernel = Get(*cache);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_THAT((*kernel)->compiler, HasSubstr("13.5 "));
}

TEST_F(ReplacedCompilerTest, ALookEndsAtTheDeadline) {
  const auto cache = OpenCounted();
  ASSERT_FALSE(Get(*cache, "CRASH").ok());
  setenv("FAKE_NVRTC_SLOW", "100", 1);
  const absl::Time start = absl::Now();
  const absl::Status status =
      cache->GetOrCompile(Source("CRASH"), start + absl::Milliseconds(200)).status();
  unsetenv("FAKE_NVRTC_SLOW");
  EXPECT_TRUE(IsRemembered(status)) << status;
  EXPECT_LT(absl::Now() - start, absl::Seconds(20));
}

}  // namespace
}  // namespace gemmd::jit
