// Compiling in helper processes, with a compiler that crashes, hangs, is missing or changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "absl/time/clock.h"
#include "kernels/base/status.h"
#include "kernels/jit/kernel_cache.h"
#include "tests/kernels/jit/cubin_header.h"

namespace gemmd::jit {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class HelperBackendTest : public ::testing::Test {
 protected:
  void SetUp() override { UseCompiler("13.7"); }
  void TearDown() override {
    unsetenv("GEMMD_NVRTC");
    unsetenv("FAKE_NVRTC_VERSION");
  }
  static void UseCompiler(const char* version) {
    setenv("GEMMD_NVRTC", GEMMD_FAKE_NVRTC, 1);
    setenv("FAKE_NVRTC_VERSION", version, 1);
  }
  static std::unique_ptr<KernelCache> Open(absl::Duration limit = absl::Seconds(20)) {
    return *KernelCache::Open(
        {.helper = {GEMMD_CACHE_PROBE, "helper"}, .compile_limit = limit, .workers = 2});
  }
  static absl::StatusOr<std::shared_ptr<const CompiledKernel>> Get(KernelCache& cache,
                                                                   const std::string& program) {
    return cache.GetOrCompile({program, "Kernel", "sm_90a"}, absl::InfiniteFuture());
  }
};

TEST_F(HelperBackendTest, CompilesInAnotherProcess) {
  const auto cache = Open();
  const auto kernel = Get(*cache, "good");
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ((*kernel)->cubin.size(), FakeCubin(90, "good").size());
  EXPECT_EQ((*kernel)->lowered_name, "Kernel");
  EXPECT_THAT((*kernel)->compiler, HasSubstr("13.7 "));
  EXPECT_EQ((*kernel)->key, KernelKey({"good", "Kernel", "sm_90a"}, (*kernel)->compiler));
}

TEST_F(HelperBackendTest, TheCompilersOwnCacheIsOffWhereThereIsOne) {
  const auto log = [](const char* version) {
    UseCompiler(version);
    const auto kernel = Get(*Open(), "good");
    return kernel.ok() ? (*kernel)->log : std::string(kernel.status().message());
  };
  EXPECT_THAT(log("12.8"), Not(HasSubstr("--no-cache")));
  EXPECT_THAT(log("12.9"), HasSubstr("--no-cache"));
  EXPECT_THAT(log("13.7"), HasSubstr("--no-cache"));
}

TEST_F(HelperBackendTest, CrashCostsThatKernelOnly) {
  const auto cache = Open();
  const auto crashed = Get(*cache, "CRASH");
  EXPECT_EQ(crashed.status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ReasonOf(crashed.status()), "COMPILER_CRASHED");
  EXPECT_THAT(std::string(crashed.status().message()), HasSubstr("signal 11"));
  EXPECT_TRUE(Get(*cache, "good").ok());
  EXPECT_TRUE(IsRemembered(Get(*cache, "CRASH").status()));
  EXPECT_EQ(cache->stats().failed_compilations, 1);
  cache->ForgetFailures();
  EXPECT_FALSE(Get(*cache, "CRASH").ok());
  EXPECT_EQ(cache->stats().failed_compilations, 2);
}

TEST_F(HelperBackendTest, HangCostsThatKernelOnlyAndEndsAtTheLimit) {
  const auto cache = Open(absl::Milliseconds(300));
  const absl::Time start = absl::Now();
  const auto hung = Get(*cache, "HANG");
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
  EXPECT_EQ(ReasonOf(hung.status()), "COMPILER_CRASHED");
  EXPECT_THAT(std::string(hung.status().message()), HasSubstr("took longer than"));
  EXPECT_TRUE(Get(*cache, "good").ok());
}

TEST_F(HelperBackendTest, ADeadCompilerIsToldAndCounted) {
  std::vector<CacheEvent> events;  // one thread asks, and a worker tells before it answers
  const auto cache = *KernelCache::Open(
      {.helper = {GEMMD_CACHE_PROBE, "helper"},
       .observer = [&events](const CacheEvent& event) { events.push_back(event); }});
  ASSERT_TRUE(Get(*cache, "good").ok());
  ASSERT_FALSE(Get(*cache, "REJECT").ok());
  EXPECT_TRUE(events.empty()) << "it lives";
  const KernelSource crash = {"CRASH", "Kernel", "sm_90a", "a label"};
  ASSERT_FALSE(cache->GetOrCompile(crash, absl::InfiniteFuture()).ok());
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, CacheEvent::Kind::kCompilerDied);
  EXPECT_EQ(events[0].kernel, "a label");
  EXPECT_EQ(events[0].key, KernelKey(crash, *cache->Compiler()));
  EXPECT_THAT(std::string(events[0].why.message()), HasSubstr("signal 11"));
  EXPECT_EQ(cache->stats().compiler_deaths, 1u);
  EXPECT_EQ(cache->stats().failed_compilations, 2u);
}

TEST_F(HelperBackendTest, WhatTheLastSearchForACompilerFoundIsKnown) {
  setenv("GEMMD_NVRTC", "/no/such/library.so", 1);
  const auto cache = Open();
  EXPECT_EQ(cache->LastCompiler().name + cache->LastCompiler().problem, "") << "nobody has looked";
  EXPECT_FALSE(cache->Compiler().ok());
  EXPECT_EQ(cache->LastCompiler().name, "");
  EXPECT_THAT(cache->LastCompiler().problem, HasSubstr("/no/such/library.so"));
  UseCompiler("13.7");
  EXPECT_TRUE(Get(*cache, "good").ok());
  const CompilerFacts found = cache->LastCompiler();
  EXPECT_THAT(found.name, HasSubstr("13.7 "));
  EXPECT_EQ(found.path, GEMMD_FAKE_NVRTC);
  EXPECT_EQ(found.problem, "");
  EXPECT_FALSE(found.architectures.empty());
  const auto broken = *KernelCache::Open({.helper = {"/no/such/program"}});
  EXPECT_FALSE(broken->Compiler().ok());
  EXPECT_THAT(broken->LastCompiler().problem, HasSubstr("/no/such/program"));
}

TEST_F(HelperBackendTest, AHelperThatDiesWhileItIsIdleCostsNoKernel) {
  const auto cache = Open();
  ASSERT_TRUE(Get(*cache, "good").ok());
  std::vector<pid_t> helpers;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(task.path() / "children");
    for (pid_t pid; file >> pid;) helpers.push_back(pid);
  }
  ASSERT_EQ(helpers.size(), 1u);
  kill(helpers[0], SIGKILL);
  siginfo_t end;
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(helpers[0]), &end, WEXITED | WNOWAIT),
            0);  // left to be reaped
  const auto kernel = Get(*cache, "better");
  EXPECT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_EQ(cache->stats().compiler_deaths, 0u);
}

TEST_F(HelperBackendTest, RejectedSourceKeepsTheLog) {
  const auto cache = Open();
  const auto rejected = Get(*cache, "REJECT");
  EXPECT_EQ(ReasonOf(rejected.status()), "COMPILE_FAILED");
  EXPECT_THAT(std::string(rejected.status().message()), HasSubstr("the log"));
  EXPECT_TRUE(IsRemembered(Get(*cache, "REJECT").status()));
  EXPECT_EQ(cache->stats().failed_compilations, 1);
}

TEST_F(HelperBackendTest, WhatIsNoCubinForTheArchitectureIsAFailedCompilation) {
  const auto cache = Open();
  for (const auto& [program, fault] : std::map<std::string, std::string>{
           {"EMPTY", "0 bytes that are no cubin"},
           {"GARBAGE", "64 bytes that are no cubin"},
           {"ANOTHER", "a cubin for sm_75"}}) {
    const absl::Status failed = Get(*cache, program).status();
    EXPECT_EQ(ReasonOf(failed), "COMPILE_FAILED") << program;
    EXPECT_THAT(std::string(failed.message()),
                AllOf(HasSubstr("nvrtcGetCUBIN for sm_90a, Kernel: NVRTC reports success and gives"),
                      HasSubstr(fault)));
  }
  EXPECT_EQ(cache->stats().failed_compilations, 3u);
  EXPECT_EQ(cache->stats().compilations, 0u);
}

TEST_F(HelperBackendTest, MissingCompilerIsTriedAgainLater) {
  setenv("GEMMD_NVRTC", "/no/such/library.so", 1);
  const auto cache = Open();
  const auto missing = Get(*cache, "good");
  EXPECT_EQ(ReasonOf(missing.status()), "NVRTC_MISSING");
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("/no/such/library.so"));
  UseCompiler("13.7");
  EXPECT_TRUE(Get(*cache, "good").ok());
}

TEST_F(HelperBackendTest, CompilerThatIsTooOldIsRefusedWithItsVersion) {
  UseCompiler("11.2");
  const auto refused = Get(*Open(), "good");
  EXPECT_EQ(ReasonOf(refused.status()), "NVRTC_MISSING");
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("version 11.2"));
}

TEST_F(HelperBackendTest, CompilerThatChangesMeanwhileIsNoticed) {
  const auto cache = Open();
  ASSERT_TRUE(Get(*cache, "good").ok());
  (void)Get(*cache, "CRASH");  // its helper is gone; the next one finds the new compiler
  UseCompiler("13.8");
  EXPECT_EQ(ReasonOf(Get(*cache, "better").status()), "COMPILER_CHANGED");
  const auto kernel = Get(*cache, "better");
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_THAT((*kernel)->compiler, HasSubstr("13.8 "));
}

TEST_F(HelperBackendTest, HelperThatDoesNotStartIsAnErrorNotAnEnd) {
  const auto cache = *KernelCache::Open({.helper = {"/no/such/program"}});
  EXPECT_EQ(ReasonOf(Get(*cache, "good").status()), "HELPER_UNAVAILABLE");
  const auto silent = *KernelCache::Open({.helper = {"/bin/true"}});
  EXPECT_EQ(ReasonOf(Get(*silent, "good").status()), "HELPER_UNAVAILABLE");
}

TEST_F(HelperBackendTest, ClosingDoesNotWaitForAHelperThatSaysNothing) {
  const auto cache = *KernelCache::Open({.helper = {"/bin/sleep", "1000"}});
  absl::Status kernel, target;
  std::thread asks([&] { kernel = Get(*cache, "good").status(); });
  std::thread checks([&] { target = cache->Architectures().status(); });
  absl::SleepFor(absl::Milliseconds(100));
  const absl::Time start = absl::Now();
  cache->Close();
  asks.join();
  checks.join();
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
  EXPECT_TRUE(absl::IsCancelled(kernel)) << kernel;
  EXPECT_TRUE(absl::IsCancelled(target)) << target;
}

TEST_F(HelperBackendTest, ClosingDoesNotWaitForACompilerThatHangs) {
  const auto cache = Open(absl::Minutes(10));
  absl::Status hung;
  std::thread asks([&] { hung = Get(*cache, "HANG").status(); });
  while (cache->stats().running == 0) absl::SleepFor(absl::Milliseconds(5));
  const absl::Time start = absl::Now();
  cache->Close();
  asks.join();
  EXPECT_TRUE(absl::IsCancelled(hung)) << hung;
  EXPECT_TRUE(absl::IsCancelled(Get(*cache, "good").status())) << "closed";
  EXPECT_LT(absl::Now() - start, absl::Seconds(10));
}

TEST_F(HelperBackendTest, ManyThreadsShareFewHelpers) {
  const auto cache = Open();
  std::vector<std::thread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&, i] { good += Get(*cache, "good" + std::to_string(i)).ok(); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 16);
}

TEST_F(HelperBackendTest, PathAndHomeAreNotNeeded) {
  const std::string path = std::getenv("PATH") != nullptr ? std::getenv("PATH") : "";
  const std::string home = std::getenv("HOME") != nullptr ? std::getenv("HOME") : "";
  unsetenv("PATH");
  unsetenv("HOME");
  EXPECT_TRUE(Get(*Open(), "good").ok());
  setenv("PATH", path.c_str(), 1);
  setenv("HOME", home.c_str(), 1);
}

}  // namespace
}  // namespace gemmd::jit
