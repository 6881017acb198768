#include "kernels/jit/kernel_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <map>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "kernels/base/status.h"
#include "kernels/jit/bundle.h"
#include "kernels/jit/cache_entry.h"
#include "tests/kernels/encode_bundle.h"
#include "tests/kernels/jit/cache_fixture.h"
#include "tests/kernels/jit/test_source.h"

namespace gemmd::jit {
namespace {

using ::testing::HasSubstr;

class KernelCacheTest : public CacheFixture {};

TEST_F(KernelCacheTest, CompilesOnceThenAnswersFromMemory) {
  const auto cache = Open();
  const auto first = Get(*cache);
  const auto second = Get(*cache);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(*first, *second);
  const CacheStats stats = cache->stats();
  EXPECT_EQ(stats.compilations, 1);
  EXPECT_EQ(stats.memory_hits, 1);
  EXPECT_EQ(stats.write_failures, 0);
  EXPECT_EQ(stats.warning, "");
  EXPECT_GT(stats.compile_time, absl::ZeroDuration());
}

// Without a directory memory is all that tells a caller who comes just as a kernel is done.
TEST_F(KernelCacheTest, NobodyCompilesAgainWhatIsJustDone) {
  const auto cache = *KernelCache::Open(fs::path());
  constexpr int kKernels = 20;
  std::vector<std::thread> pollers;
  for (int i = 0; i < 6; ++i) {
    pollers.emplace_back([&cache] {
      for (int factor = 1; factor <= kKernels; ++factor) {
        while (!cache->GetOrCompile(ScaleKernel(factor), absl::InfinitePast()).ok()) {
        }
      }
    });
  }
  for (std::thread& poller : pollers) poller.join();
  EXPECT_EQ(cache->stats().compilations, kKernels);
}

TEST_F(KernelCacheTest, NothingIsCompiledAfterARestart) {
  const auto compiled = Get(*Open());
  const auto cache = Open();
  const auto read = Get(*cache);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ((*read)->cubin, (*compiled)->cubin);
  EXPECT_EQ((*read)->lowered_name, (*compiled)->lowered_name);
  EXPECT_EQ(cache->stats().compilations, 0);
  EXPECT_EQ(cache->stats().disk_hits, 1);
}

TEST_F(KernelCacheTest, LeavesOnlyEntriesAndPrivatePermissions) {
  ASSERT_TRUE(Get(*Open()).ok());
  EXPECT_EQ(FilesWith(".kernel"), 1);
  EXPECT_EQ(FilesWith(".lock") + FilesWith(".tmp"), 0);
  struct stat info;
  ASSERT_EQ(stat(directory_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_EQ(stat(EntryOf(2).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(KernelCacheTest, DamagedEntriesAreCountedAndRebuilt) {
  ASSERT_TRUE(Get(*Open(), 2).ok());
  ASSERT_TRUE(Get(*Open(), 3).ok());
  const std::string whole = ReadEntry(2);
  ExpectRebuilt(whole.substr(0, whole.size() / 2), "truncated");
  ExpectRebuilt(whole.substr(0, 20), "shorter than the header");
  ExpectRebuilt("", "empty");
  ExpectRebuilt(std::string(whole.size(), '\0'), "zeros");
  std::string flipped = whole;
  flipped[whole.size() - 100] ^= 1;
  ExpectRebuilt(flipped, "flipped bit");
  ExpectRebuilt(ReadEntry(3), "entry of another kernel");
  ExpectRebuilt(whole + "more", "longer");
}

TEST_F(KernelCacheTest, EachDroppedEntryIsToldWithItsKeyAndKindAndCountedByIt) {
  ASSERT_TRUE(Get(*Open()).ok());
  const std::string whole = ReadEntry(2);
  const std::string key = KernelKey(ScaleKernel(2), *real_nvrtc);
  CompiledKernel kernel = *DecodeEntry(whole, key);
  std::string stale = whole;
  stale[8] = 1;
  kernel.compiler = "13.0 elsewhere";
  const std::string foreign = EncodeEntry(kernel);
  for (const auto& [bytes, kind] : std::map<std::string, std::string>{
           {"short", "damaged"}, {stale, "stale"}, {foreign, "foreign"}}) {
    WriteEntry(2, bytes);
    std::vector<CacheEvent> events;  // one thread asks, and a worker tells before it answers
    const auto cache = *KernelCache::Open(
        {.directory = directory_,
         .observer = [&events](const CacheEvent& event) { events.push_back(event); }});
    ASSERT_TRUE(Get(*cache).ok()) << kind;
    ASSERT_EQ(events.size(), 1u) << kind;
    EXPECT_EQ(events[0].kind, CacheEvent::Kind::kEntryDropped);
    EXPECT_EQ(events[0].key, key);
    EXPECT_EQ(events[0].problem, kind);
    EXPECT_FALSE(events[0].why.ok());
    const CacheStats stats = cache->stats();
    EXPECT_EQ(stats.damaged_entries, kind == "damaged");
    EXPECT_EQ(stats.stale_entries, kind == "stale");
    EXPECT_EQ(stats.foreign_entries, kind == "foreign");
  }
}

TEST_F(KernelCacheTest, ACubinOfAnotherArchitectureIsFoundWhenItIsReadAndWhenItIsImported) {
  ASSERT_TRUE(Get(*Open()).ok());
  const std::string key = KernelKey(ScaleKernel(2), *real_nvrtc);
  CompiledKernel forged = *DecodeEntry(ReadEntry(2), key);
  forged.cubin = Compile(ScaleKernel(2, "sm_80"), *real_nvrtc)->cubin;
  WriteEntry(2, EncodeEntry(forged));
  const auto cache = Open();
  const auto kernel = Get(*cache);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  EXPECT_NE((*kernel)->cubin, forged.cubin);
  EXPECT_EQ(cache->stats().foreign_entries, 1);
  EXPECT_EQ(cache->stats().compilations, 1);
  const absl::Status refused = DecodeBundle(EncodeBundle({EncodeEntry(forged)})).status();
  EXPECT_EQ(ReasonOf(refused), "BUNDLE_DAMAGED");
  EXPECT_THAT(std::string(refused.message()), HasSubstr("cubin for 'sm_80', not 'sm_90a'"));
}

TEST_F(KernelCacheTest, ForeignThingsInPlaceOfAnEntryAreReplaced) {
  ASSERT_TRUE(Get(*Open()).ok());
  fs::remove(EntryOf(2));
  fs::create_directories(EntryOf(2) / "inside");
  const auto cache = Open();
  ASSERT_TRUE(Get(*cache).ok());
  EXPECT_EQ(cache->stats().damaged_entries, 1);
  EXPECT_TRUE(fs::is_regular_file(EntryOf(2)));
}

TEST_F(KernelCacheTest, LinksAreNotFollowed) {
  ASSERT_TRUE(Get(*Open()).ok());
  fs::rename(EntryOf(2), parent_ / "elsewhere");
  fs::create_symlink(parent_ / "elsewhere", EntryOf(2));
  const auto cache = Open();
  ASSERT_TRUE(Get(*cache).ok());
  EXPECT_EQ(cache->stats().disk_hits, 0);
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(EntryOf(2))));
}

TEST_F(KernelCacheTest, TimesOfFilesPlayNoRole) {
  ASSERT_TRUE(Get(*Open()).ok());
  fs::last_write_time(EntryOf(2), fs::file_time_type::min() + std::chrono::hours(1));
  const auto cache = Open();
  ASSERT_TRUE(Get(*cache).ok());
  EXPECT_EQ(cache->stats().disk_hits, 1);
}

TEST_F(KernelCacheTest, EntriesOfAnotherCompilerVersionAreNotUsed) {
  ASSERT_TRUE(Get(*Open()).ok());
  NvrtcTable newer = *real_nvrtc;
  newer.version = "99.0";
  const auto cache = *KernelCache::Open(directory_, &newer);
  ASSERT_TRUE(Get(*cache).ok());
  EXPECT_EQ(cache->stats().disk_hits, 0);
  EXPECT_EQ(cache->stats().compilations, 1);
}

TEST_F(KernelCacheTest, FailureCarriesTheLogAndIsRemembered) {
  const auto cache = Open();
  const KernelSource broken{"__global__ void A() { oops(); }", "A", "sm_90a"};
  const auto first = cache->GetOrCompile(broken, absl::InfiniteFuture());
  EXPECT_EQ(ReasonOf(first.status()), "COMPILE_FAILED");
  EXPECT_THAT(std::string(first.status().message()), HasSubstr("oops"));
  const absl::Status again = cache->GetOrCompile(broken, absl::InfiniteFuture()).status();
  EXPECT_TRUE(IsRemembered(again));
  EXPECT_THAT(std::string(again.message()), HasSubstr("oops"));
  EXPECT_EQ(cache->stats().failed_compilations, 1);
  EXPECT_EQ(FilesWith(".kernel"), 0);
}

TEST_F(KernelCacheTest, SixtyFourThreadsShareOneCompilation) {
  compile_delay_ms = 50;
  const auto cache = *KernelCache::Open(directory_, &slow_nvrtc_);
  std::atomic<int> successes{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 64; ++i) {
    threads.emplace_back([&] { successes += Get(*cache).ok(); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(successes, 64);
  const CacheStats stats = cache->stats();
  EXPECT_EQ(stats.compilations, 1);
  EXPECT_EQ(stats.shared_waits + stats.memory_hits, 63);
}

// The first to ask looks through the folder for compilers; the others must not go without.
TEST_F(KernelCacheTest, ThreadsThatComeTogetherAllFindWhatAnyCompilerMade) {
  for (int n = 0; n < 8; ++n) ASSERT_TRUE(Get(*Open(), n + 1).ok());
  for (int round = 0; round < 20; ++round) {
    const auto cache = Open();
    std::atomic<int> found{0};
    std::vector<std::thread> threads;
    for (int n = 0; n < 8; ++n) {
      threads.emplace_back([&, n] {
        bool on_disk = false;
        if (cache->FindOfAnyCompiler(ScaleKernel(n + 1), on_disk) != nullptr) ++found;
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(found, 8) << round;
  }
}

TEST_F(KernelCacheTest, DifferentKernelsCompileSideBySide) {
  const auto cache = Open();
  std::atomic<int> successes{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] { successes += Get(*cache, i + 1).ok(); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(successes, 8);
  EXPECT_EQ(cache->stats().compilations, 8);
}

TEST_F(KernelCacheTest, DeadlineEndsTheWaitNotTheCompilation) {
  compile_delay_ms = 200;
  const auto cache = *KernelCache::Open(directory_, &slow_nvrtc_);
  const auto late = cache->GetOrCompile(ScaleKernel(2), absl::Now() + absl::Milliseconds(10));
  EXPECT_EQ(late.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(Get(*cache).ok());
  EXPECT_EQ(cache->stats().compilations, 1);
}

TEST_F(KernelCacheTest, PastDeadlineStartsTheWorkAndAnswersFromMemory) {
  const auto cache = Open();
  const auto first = cache->GetOrCompile(ScaleKernel(2), absl::InfinitePast());
  EXPECT_EQ(first.status().code(), absl::StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(Get(*cache).ok());
  EXPECT_TRUE(cache->GetOrCompile(ScaleKernel(2), absl::InfinitePast()).ok());
}

TEST_F(KernelCacheTest, ClosingWaitsForARunningCompilation) {
  compile_delay_ms = 100;
  {
    const auto cache = *KernelCache::Open(directory_, &slow_nvrtc_);
    (void)cache->GetOrCompile(ScaleKernel(2), absl::Now() + absl::Milliseconds(20));
  }
  EXPECT_EQ(FilesWith(".kernel"), 1);
  EXPECT_EQ(FilesWith(".lock") + FilesWith(".tmp"), 0);
}

TEST_F(KernelCacheTest, TheCompilerIsToldAsFarAsSomebodyHasLooked) {
  const auto cache = Open();
  EXPECT_EQ(cache->LastCompiler().name + cache->LastCompiler().problem, "");
  ASSERT_TRUE(cache->Compiler().ok());
  EXPECT_EQ(cache->LastCompiler().name, CompilerName(*real_nvrtc));
  EXPECT_TRUE(fs::path(cache->LastCompiler().path).is_absolute()) << cache->LastCompiler().path;
  EXPECT_TRUE(fs::exists(cache->LastCompiler().path));
}

TEST_F(KernelCacheTest, EmptyDirectoryNameMeansMemoryOnly) {
  const auto cache = *KernelCache::Open("");
  ASSERT_TRUE(Get(*cache).ok());
  EXPECT_EQ(cache->stats().warning, "");
  EXPECT_FALSE(fs::exists(directory_));
}

TEST_F(KernelCacheTest, UnusableDirectoryWarnsAndWorksFromMemory) {
  std::ofstream(parent_ / "file") << "no directory";
  const auto cache = *KernelCache::Open(parent_ / "file" / "kernels");
  ASSERT_TRUE(Get(*cache).ok());
  ASSERT_TRUE(Get(*cache).ok());
  EXPECT_EQ(cache->stats().memory_hits, 1);
  EXPECT_THAT(cache->stats().warning, HasSubstr("is not used"));
}

TEST_F(KernelCacheTest, ADirectoryThatIsALinkToNothingIsSaid) {
  fs::create_directory_symlink(parent_ / "gone", directory_);
  const auto cache = Open();
  ASSERT_TRUE(Get(*cache).ok());
  EXPECT_THAT(cache->stats().warning,
              HasSubstr("is not used: a symbolic link to " + (parent_ / "gone").string() + ", which is not there"));
}

TEST_F(KernelCacheTest, DirectoryThatEveryoneMayWriteIsNotTrusted) {
  fs::create_directory(directory_);
  ASSERT_EQ(chmod(directory_.c_str(), 0777), 0);
  const auto cache = Open();
  ASSERT_TRUE(Get(*cache).ok());
  EXPECT_THAT(cache->stats().warning, HasSubstr("every user may write"));
  EXPECT_EQ(FilesWith(".kernel"), 0);
}

TEST_F(KernelCacheTest, ReadOnlyDirectoryServesWhatItHasAndWarnsAboutTheRest) {
  ASSERT_TRUE(Get(*Open(), 2).ok());
  ASSERT_EQ(chmod(EntryOf(2).c_str(), 0444), 0);
  ASSERT_EQ(chmod(directory_.c_str(), 0555), 0);
  ASSERT_EQ(chmod(parent_.c_str(), 0755), 0);
  {
    const OrdinaryUser user;
    const auto cache = Open();
    EXPECT_TRUE(Get(*cache, 2).ok());
    EXPECT_EQ(cache->stats().disk_hits, 1);
    EXPECT_TRUE(Get(*cache, 3).ok());
    EXPECT_TRUE(Get(*cache, 3).ok());
    const CacheStats stats = cache->stats();
    EXPECT_EQ(stats.compilations, 1);
    EXPECT_EQ(stats.memory_hits, 1);
    EXPECT_EQ(stats.write_failures, 1);
    EXPECT_THAT(stats.warning, HasSubstr("Permission denied"));
  }
  ASSERT_EQ(chmod(directory_.c_str(), 0700), 0);
}

TEST_F(KernelCacheTest, LeftoversOfDeadWritersAreRemoved) {
  fs::create_directory(directory_);
  std::ofstream(directory_ / "abc.1-0.tmp") << "half";
  std::ofstream(directory_ / "abc.lock");
  std::ofstream(directory_ / "README") << "not ours";
  ASSERT_EQ(chmod(directory_.c_str(), 0700), 0);
  const auto cache = Open();
  EXPECT_EQ(FilesWith(".tmp") + FilesWith(".lock"), 0);
  EXPECT_TRUE(fs::exists(directory_ / "README"));
}

TEST_F(KernelCacheTest, EightProcessesShareOneCompilation) {
  std::vector<std::unique_ptr<Probe>> probes;
  for (int i = 0; i < 8; ++i) probes.push_back(std::make_unique<Probe>("get", directory_, "7"));
  for (const auto& probe : probes) probe->Start();
  int compiled = 0;
  int read = 0;
  for (const auto& probe : probes) {
    const std::string line = probe->ReadLine();
    compiled += line == "compilations 1 disk_hits 0";
    read += line == "compilations 0 disk_hits 1";
    EXPECT_EQ(probe->Wait(), 0);
  }
  EXPECT_EQ(compiled, 1);
  EXPECT_EQ(read, 7);
  EXPECT_EQ(FilesWith(".lock") + FilesWith(".tmp"), 0);
}

TEST_F(KernelCacheTest, LockOfALivingProcessIsWaitedForThatOfADeadOneIsNot) {
  Probe owner("lock", directory_, KernelKey(ScaleKernel(2), *real_nvrtc));
  owner.Start();
  ASSERT_EQ(owner.ReadLine(), "held");
  const auto cache = Open();
  const auto waiting = cache->GetOrCompile(ScaleKernel(2), absl::Now() + absl::Milliseconds(100));
  EXPECT_EQ(waiting.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(cache->stats().compilations, 0);
  owner.Kill();
  EXPECT_TRUE(Get(*cache).ok());
  EXPECT_EQ(cache->stats().compilations, 1);
}

}  // namespace
}  // namespace gemmd::jit
