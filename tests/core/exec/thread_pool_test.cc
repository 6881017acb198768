#include "core/exec/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

namespace gemmd {
namespace {

TEST(ThreadPoolTest, RunsEveryIndexOnce) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> counts(1000);
  pool.ParallelFor(1000, [&](int64_t i) { ++counts[static_cast<size_t>(i)]; });
  for (const auto& count : counts) EXPECT_EQ(count, 1);
}

TEST(ThreadPoolTest, NothingToDoReturns) {
  ThreadPool pool(3);
  pool.ParallelFor(0, [](int64_t) { FAIL(); });
}

TEST(ThreadPoolTest, LoopsOfManyCallersShareTheWorkers) {
  ThreadPool pool(3);
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int t = 0; t < 8; ++t) {
    callers.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        pool.ParallelFor(20, [&](int64_t i) { sum += i; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 8 * 50 * 190);
}

TEST(ThreadPoolTest, ThrowsInTheCallerAndKeepsWorking) {
  ThreadPool pool(3);
  EXPECT_THROW(pool.ParallelFor(100,
                                [](int64_t i) {
                                  if (i == 7) throw std::runtime_error("seven");
                                }),
               std::runtime_error);
  std::atomic<int> count{0};
  pool.ParallelFor(10, [&](int64_t) { ++count; });
  EXPECT_EQ(count, 10);
}

}  // namespace
}  // namespace gemmd
