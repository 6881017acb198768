// Kernels asked for without a thread that waits; compilations that nobody wants any more; closing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/time/clock.h"
#include "kernels/base/status.h"
#include "tests/kernels/jit/cache_fixture.h"

namespace gemmd::jit {
namespace {

using ::testing::HasSubstr;

// Answers as they come.
class Mailbox {
 public:
  KernelCache::Answer Slot() {
    return [this](const absl::StatusOr<SharedKernel>& kernel) {
      MutexLock lock(mutex_);
      answers_.push_back(kernel);
      changed_.NotifyAll();
    };
  }
  std::vector<absl::StatusOr<SharedKernel>> Await(size_t count) {
    MutexLock lock(mutex_);
    changed_.WaitUntil(mutex_, absl::Now() + absl::Seconds(60),
                       [&] { return answers_.size() >= count; });
    return answers_;
  }
  size_t size() {
    MutexLock lock(mutex_);
    return answers_.size();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<absl::StatusOr<SharedKernel>> answers_ ABSL_GUARDED_BY(mutex_);
};

template <typename Condition>
bool Within(absl::Duration limit, Condition condition) {
  const absl::Time deadline = absl::Now() + limit;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

class AskTest : public CacheFixture {};

TEST_F(AskTest, AnswersFromTheCompilerThenFromMemory) {
  const auto cache = Open();
  Mailbox mailbox;
  EXPECT_NE(cache->Ask(ScaleKernel(2), CompilePriority::kSpecialise, mailbox.Slot()), 0u);
  const auto answers = mailbox.Await(1);
  ASSERT_EQ(answers.size(), 1u);
  ASSERT_TRUE(answers[0].ok()) << answers[0].status();
  EXPECT_EQ(cache->Ask(ScaleKernel(2), CompilePriority::kSpecialise, mailbox.Slot()), 0u);
  ASSERT_EQ(mailbox.size(), 2u) << "before Ask returned";
  EXPECT_EQ(*mailbox.Await(2)[1], *answers[0]);
  EXPECT_EQ(cache->stats().compilations, 1);
}

TEST_F(AskTest, ManyAskersAndAThreadShareOneCompilation) {
  compile_delay_ms = 50;
  const auto cache = *KernelCache::Open(directory_, &slow_nvrtc_);
  Mailbox mailbox;
  for (int i = 0; i < 5; ++i) {
    cache->Ask(ScaleKernel(2), CompilePriority::kPrewarm, mailbox.Slot());
  }
  const auto kernel = Get(*cache);
  ASSERT_TRUE(kernel.ok());
  for (const auto& answer : mailbox.Await(5)) EXPECT_EQ(*answer, *kernel);
  EXPECT_EQ(cache->stats().compilations, 1);
}

TEST_F(AskTest, ForgottenWishGetsNoAnswerAndTheOthersDo) {
  compile_delay_ms = 100;
  const auto cache = *KernelCache::Open(directory_, &slow_nvrtc_);
  Mailbox kept;
  Mailbox forgotten;
  const uint64_t wish = cache->Ask(ScaleKernel(2), CompilePriority::kSpecialise, forgotten.Slot());
  cache->Ask(ScaleKernel(2), CompilePriority::kSpecialise, kept.Slot());
  cache->Forget(wish);
  EXPECT_TRUE(kept.Await(1)[0].ok());
  EXPECT_EQ(forgotten.size(), 0u);
  EXPECT_EQ(cache->stats().cancelled, 0u);
}

TEST_F(AskTest, FailureIsAnAnswer) {
  const auto cache = Open();
  Mailbox mailbox;
  for (int i = 0; i < 2; ++i) {
    cache->Ask({"__global__ void A() { oops(); }", "A", "sm_90a"}, CompilePriority::kSpecialise,
               mailbox.Slot());
    const auto answers = mailbox.Await(i + 1);
    ASSERT_EQ(answers.size(), i + 1);
    EXPECT_EQ(ReasonOf(answers[i].status()), "COMPILE_FAILED");
    EXPECT_THAT(std::string(answers[i].status().message()), HasSubstr("oops"));
  }
  EXPECT_EQ(cache->stats().failed_compilations, 1);
  cache->Ask(ScaleKernel(2, "volta"), CompilePriority::kSpecialise, mailbox.Slot());
  EXPECT_EQ(ReasonOf(mailbox.Await(3)[2].status()), "BAD_ARCHITECTURE");
}

TEST_F(AskTest, FindReadsTheDiskAndNeverCompiles) {
  ASSERT_EQ(Open()->Find(ScaleKernel(2)), nullptr);
  ASSERT_TRUE(Get(*Open()).ok());
  const auto cache = Open();
  const SharedKernel found = cache->Find(ScaleKernel(2));
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(cache->Find(ScaleKernel(2)), found);
  EXPECT_EQ(cache->Find(ScaleKernel(3)), nullptr);
  EXPECT_EQ(cache->stats().disk_hits, 1);
  EXPECT_EQ(cache->stats().compilations, 0);
  EXPECT_EQ(FilesWith(".loaded"), 1) << "eviction leaves it alone";
}

TEST_F(AskTest, ClosedCacheAnswersCancelledButForWhatIsInMemory) {
  const auto cache = Open();
  ASSERT_TRUE(Get(*cache, 2).ok());
  cache->Close();
  EXPECT_TRUE(Get(*cache, 2).ok());
  EXPECT_EQ(Get(*cache, 3).status().code(), absl::StatusCode::kCancelled);
  Mailbox mailbox;
  cache->Ask(ScaleKernel(3), CompilePriority::kClient, mailbox.Slot());
  EXPECT_EQ(mailbox.Await(1)[0].status().code(), absl::StatusCode::kCancelled);
}

// Compilations in helper processes that hang until they are killed.
class AbandonTest : public CacheFixture {
 protected:
  void SetUp() override {
    setenv("GEMMD_NVRTC", GEMMD_FAKE_NVRTC, 1);
    setenv("FAKE_NVRTC_VERSION", "13.7", 1);
    std::string pattern = (fs::temp_directory_path() / "gemmd_cache_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    parent_ = pattern;
    directory_ = parent_ / "kernels";
    cache_ = *KernelCache::Open(
        {.directory = directory_, .helper = {GEMMD_CACHE_PROBE, "helper"}, .workers = 1});
  }
  void TearDown() override {
    cache_.reset();
    unsetenv("GEMMD_NVRTC");
    unsetenv("FAKE_NVRTC_VERSION");
    CacheFixture::TearDown();
  }
  static KernelSource Source(const std::string& program) { return {program, "Kernel", "sm_90a"}; }
  // Asks for a kernel whose compiler hangs, and waits until it does.
  uint64_t AskForever(Mailbox& mailbox) {
    const uint64_t wish = cache_->Ask(Source("HANG"), CompilePriority::kSpecialise, mailbox.Slot());
    EXPECT_TRUE(Within(absl::Seconds(20), [&] { return cache_->stats().running == 1; }));
    absl::SleepFor(absl::Milliseconds(50));
    return wish;
  }
  int Children() const {
    int count = 0;
    for (const auto& entry : fs::directory_iterator("/proc/self/task")) {
      std::ifstream file(entry.path() / "children");
      for (std::string pid; file >> pid;) ++count;
    }
    return count;
  }
  std::unique_ptr<KernelCache> cache_;
};

TEST_F(AbandonTest, CompilationThatNobodyWaitsForIsKilledAndTheWorkerIsFree) {
  Mailbox mailbox;
  const uint64_t wish = AskForever(mailbox);
  const absl::Time start = absl::Now();
  cache_->Forget(wish);
  ASSERT_TRUE(cache_->GetOrCompile(Source("good"), absl::InfiniteFuture()).ok());
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  EXPECT_EQ(mailbox.size(), 0u);
  EXPECT_EQ(cache_->stats().cancelled, 1u);
  EXPECT_EQ(cache_->stats().failed_compilations, 0u) << "no fault of the compiler";
  EXPECT_EQ(Children(), 1) << "the idle helper";
  EXPECT_EQ(FilesWith(".lock"), 0);
}

TEST_F(AbandonTest, CancelledCallerTakesARunningCompilationAlong) {
  std::atomic<bool> cancelled{false};
  std::thread caller([&] {
    const auto kernel = cache_->GetOrCompile(
        Source("HANG"), CompileRequest{.cancelled = [&] { return cancelled.load(); }});
    EXPECT_EQ(kernel.status().code(), absl::StatusCode::kCancelled);
  });
  EXPECT_TRUE(Within(absl::Seconds(20), [&] { return cache_->stats().running == 1; }));
  cancelled = true;
  caller.join();
  EXPECT_TRUE(Within(absl::Seconds(5), [&] { return cache_->stats().running == 0; }));
  EXPECT_EQ(cache_->stats().cancelled, 1u);
}

TEST_F(AbandonTest, CompilationThatSomebodyElseWaitsForGoesOn) {
  Mailbox first;
  Mailbox second;
  const uint64_t wish = AskForever(first);
  const uint64_t other = cache_->Ask(Source("HANG"), CompilePriority::kSpecialise, second.Slot());
  cache_->Forget(wish);
  absl::SleepFor(absl::Milliseconds(100));
  EXPECT_EQ(cache_->stats().running, 1u);
  cache_->Forget(other);
  EXPECT_TRUE(Within(absl::Seconds(5), [&] { return cache_->stats().running == 0; }));
}

TEST_F(AbandonTest, ForgottenAndAskedAgainCompilesAgain) {
  Mailbox mailbox;
  cache_->Forget(AskForever(mailbox));
  setenv("FAKE_NVRTC_NO_HANG", "1", 1);
  cache_->Ask(Source("HANG"), CompilePriority::kSpecialise, mailbox.Slot());
  EXPECT_TRUE(mailbox.Await(1)[0].ok());
  unsetenv("FAKE_NVRTC_NO_HANG");
}

TEST_F(AbandonTest, ClosingKillsWhatRunsAndAnswersEverybody) {
  Mailbox running;
  Mailbox waiting;
  AskForever(running);
  cache_->Ask(Source("good"), CompilePriority::kSpecialise, waiting.Slot());
  const absl::Time start = absl::Now();
  cache_->Close();
  EXPECT_EQ(running.Await(1)[0].status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(waiting.Await(1)[0].status().code(), absl::StatusCode::kCancelled);
  cache_.reset();
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  EXPECT_EQ(Children(), 0);
  EXPECT_EQ(FilesWith(".lock") + FilesWith(".tmp"), 0);
}

}  // namespace
}  // namespace gemmd::jit
