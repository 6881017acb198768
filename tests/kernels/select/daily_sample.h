// What    Which of many kernels a test compiles: those of GEMMD_TEST_DAY, which is 0 unless given, so that a tree that
//         passes goes on passing. Each day has others, so that in time all are seen: `deploy/check --full` gives
//         the day that it is. All with GEMMD_TEST_FULL=1.
// Threads One thread.
#ifndef GEMMD_TESTS_KERNELS_SELECT_DAILY_SAMPLE_H_
#define GEMMD_TESTS_KERNELS_SELECT_DAILY_SAMPLE_H_

#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace gemmd::testing {

class DailySample {
 public:
  DailySample() {
    const char* given = std::getenv("GEMMD_TEST_DAY");
    if (given != nullptr) day_ = std::strtoull(given, nullptr, 10);
    if (!all_) std::printf("sample of GEMMD_TEST_DAY=%zu\n", day_);
  }

  // One in `every`: within that many days each.
  bool Has(size_t index, size_t every) const { return all_ || (index + day_) % every == 0; }
  size_t day() const { return day_; }

 private:
  const bool all_ = std::getenv("GEMMD_TEST_FULL") != nullptr;
  size_t day_ = 0;
};

}  // namespace gemmd::testing

#endif  // GEMMD_TESTS_KERNELS_SELECT_DAILY_SAMPLE_H_
