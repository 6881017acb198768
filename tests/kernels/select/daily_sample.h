// What    Which of many kernels a test compiles: others every day, so that in time all are seen. All with
//         GEMMD_TEST_FULL=1. GEMMD_TEST_DAY=N repeats the sample of a day; the test prints N.
// Threads One thread.
#ifndef GEMMD_TESTS_KERNELS_SELECT_DAILY_SAMPLE_H_
#define GEMMD_TESTS_KERNELS_SELECT_DAILY_SAMPLE_H_

#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include "absl/time/clock.h"

namespace gemmd::testing {

class DailySample {
 public:
  DailySample() {
    const char* given = std::getenv("GEMMD_TEST_DAY");
    const absl::Duration since_1970 = absl::Now() - absl::UnixEpoch();
    day_ = given != nullptr ? std::strtoull(given, nullptr, 10)
                            : static_cast<size_t>(since_1970 / absl::Hours(24));
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
