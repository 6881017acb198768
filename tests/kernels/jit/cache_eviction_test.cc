// Size limit of the disk tier, with entries of real kernels.
#include <gmock/gmock.h>

#include "tests/kernels/jit/cache_fixture.h"

namespace gemmd::jit {
namespace {

namespace fs = std::filesystem;

class CacheEvictionTest : public CacheFixture {
 protected:
  void SetUp() override {
    CacheFixture::SetUp();
    if (IsSkipped()) return;
    ASSERT_TRUE(Get(*Open(), 1).ok());
    entry_bytes_ = fs::file_size(EntryOf(1));
  }
  // Room for `entries` of the test kernels, which are of about one size.
  std::unique_ptr<KernelCache> OpenFor(int entries) {
    return *KernelCache::Open(
        {.directory = directory_, .max_bytes = entry_bytes_ * entries + entry_bytes_ / 2});
  }
  static absl::Status Prewarm(KernelCache& cache, int factor) {
    return cache
        .GetOrCompile(ScaleKernel(factor), CompileRequest{.priority = CompilePriority::kPrewarm})
        .status();
  }
  uint64_t entry_bytes_ = 0;
};

TEST_F(CacheEvictionTest, LeastRecentlyUsedEntriesGoWhenTheLimitIsPassed) {
  const auto cache = OpenFor(4);
  for (int factor = 2; factor <= 4; ++factor) ASSERT_TRUE(Prewarm(*cache, factor).ok());
  ASSERT_TRUE(Prewarm(*cache, 2).ok());  // used again
  ASSERT_TRUE(Prewarm(*cache, 5).ok());
  EXPECT_TRUE(fs::exists(EntryOf(2)));
  EXPECT_TRUE(fs::exists(EntryOf(5)));
  EXPECT_FALSE(fs::exists(EntryOf(1)));
  EXPECT_GE(cache->stats().evicted_entries, 1);
  EXPECT_LE(cache->stats().disk_bytes, entry_bytes_ * 4 + entry_bytes_ / 2);
}

TEST_F(CacheEvictionTest, WhatIsLoadedStaysWhateverTheLimit) {
  const auto cache = OpenFor(1);
  for (int factor = 2; factor <= 4; ++factor) ASSERT_TRUE(Get(*cache, factor).ok());
  for (int factor = 2; factor <= 4; ++factor) EXPECT_TRUE(fs::exists(EntryOf(factor)));
  EXPECT_FALSE(fs::exists(EntryOf(1)));
}

TEST_F(CacheEvictionTest, WhatAnotherLivingCacheHasLoadedStaysToo) {
  const auto other = OpenFor(100);
  ASSERT_TRUE(Get(*other, 1).ok());
  const auto cache = OpenFor(2);
  for (int factor = 2; factor <= 6; ++factor) ASSERT_TRUE(Prewarm(*cache, factor).ok());
  EXPECT_TRUE(fs::exists(EntryOf(1)));
  EXPECT_TRUE(fs::exists(EntryOf(6)));
  EXPECT_FALSE(fs::exists(EntryOf(2)));
}

TEST_F(CacheEvictionTest, TimesOfFilesThatGoBackChangeNothing) {
  const auto cache = OpenFor(3);
  for (int factor = 2; factor <= 3; ++factor) ASSERT_TRUE(Prewarm(*cache, factor).ok());
  const auto past = fs::file_time_type::clock::now() - std::chrono::hours(24 * 365 * 20);
  fs::last_write_time(EntryOf(3), past);
  ASSERT_TRUE(Prewarm(*cache, 4).ok());
  EXPECT_TRUE(fs::exists(EntryOf(3)));
  EXPECT_FALSE(fs::exists(EntryOf(1)));
}

TEST_F(CacheEvictionTest, PrewarmedKernelsDoNotStayInMemory) {
  const auto cache = OpenFor(100);
  ASSERT_TRUE(Prewarm(*cache, 2).ok());
  ASSERT_TRUE(Prewarm(*cache, 2).ok());
  EXPECT_EQ(cache->stats().memory_hits, 0);
  EXPECT_EQ(cache->stats().disk_hits, 1);
  EXPECT_EQ(cache->stats().compilations, 1);
}

TEST_F(CacheEvictionTest, CancelledPrewarmThatHasNotStartedIsDropped) {
  compile_delay_ms = 200;
  const auto cache =
      *KernelCache::Open({.directory = directory_, .nvrtc = &slow_nvrtc_, .workers = 1});
  (void)cache->GetOrCompile(ScaleKernel(2), absl::Now() + absl::Milliseconds(20));
  const auto cancelled = cache->GetOrCompile(
      ScaleKernel(3),
      CompileRequest{.priority = CompilePriority::kPrewarm, .cancelled = [] { return true; }});
  EXPECT_EQ(cancelled.status().code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(Get(*cache, 2).ok());
  EXPECT_EQ(cache->stats().cancelled, 1);
  EXPECT_EQ(cache->stats().compilations, 1);
}

TEST_F(CacheEvictionTest, WithoutACompilerTheFilledDirectoryServes) {
  ASSERT_EQ(setenv("GEMMD_NVRTC", "/no/such/library", 1), 0);
  const auto cache =
      *KernelCache::Open({.directory = directory_, .helper = {GEMMD_CACHE_PROBE, "helper"}});
  EXPECT_TRUE(Get(*cache, 1).ok());
  EXPECT_EQ(cache->stats().disk_hits, 1);
  const auto missing = Get(*cache, 2);
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kUnavailable);
  ASSERT_EQ(unsetenv("GEMMD_NVRTC"), 0);
}

}  // namespace
}  // namespace gemmd::jit
