#include "server/prewarm_tally.h"

#include "absl/strings/str_cat.h"
#include "server/admin_calls.h"
#include "server/logging.h"

namespace gemmd {

void PrewarmTally::Count(const PrewarmStep& step) {
  switch (step.outcome) {
    case PrewarmOutcome::kCompiled:
      ++compiled_;
      return;
    case PrewarmOutcome::kCached:
      ++cached_;
      return;
    case PrewarmOutcome::kNoKernel:
      ++no_kernel_;
      return;
    case PrewarmOutcome::kFailed:
      ++failed_;
      break;
    case PrewarmOutcome::kNotStored:
      ++not_stored_;
      break;
  }
  if (first_problem_.empty()) {
    first_problem_ = absl::StrCat(step.kernel, " for ", step.architecture, ": ", step.message);
  }
}

void PrewarmTally::Log(const absl::Status& status) const {
  gemmd::Log(first_problem_.empty() ? LogLevel::kInfo : LogLevel::kWarn, "prewarm ended",
             {{"status", OutcomeText(status)},
              {"compiled", compiled_},
              {"cached", cached_},
              {"failed", failed_},
              {"not_stored", not_stored_},
              {"layers_without_kernel", no_kernel_},
              {"first_problem", first_problem_}});
}

}  // namespace gemmd
