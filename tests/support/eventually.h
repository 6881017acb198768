// What    Waits for what another thread does.
// Threads Any.
#ifndef GEMMD_TESTS_SUPPORT_EVENTUALLY_H_
#define GEMMD_TESTS_SUPPORT_EVENTUALLY_H_

#include "absl/time/clock.h"

namespace gemmd::testing {

// Polls until `condition` holds, at most a minute.
template <typename Condition>
bool Eventually(Condition condition) {
  const absl::Time deadline = absl::Now() + absl::Minutes(1);
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(2));
  }
  return true;
}

}  // namespace gemmd::testing

#endif  // GEMMD_TESTS_SUPPORT_EVENTUALLY_H_
