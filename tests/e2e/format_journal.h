// What    What a run of the formats tests found, one line of JSON as soon as it is known, so that a run that was
//         stopped goes on where it was: formats.py makes the results of it. Lines:
//           {"device": {...}}
//           {"part": ..., "index": ..., "count": ..., "key": ..., "rows": [...], "as_expected": ...}
//         Other lines are the caller's. What was not as expected is done again.
// Threads Thread-safe.
#ifndef GEMMD_TESTS_E2E_FORMAT_JOURNAL_H_
#define GEMMD_TESTS_E2E_FORMAT_JOURNAL_H_

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "kernels/base/mutex.h"

namespace gemmd::e2e {

class FormatJournal {
 public:
  // Of one part with `count` units. An empty path: nothing is kept.
  FormatJournal(const std::string& path, const std::string& part, size_t count);

  void SetDevice(const nlohmann::json& device);
  // An earlier run has it.
  bool Has(const std::string& key) const { return done_.count(key) != 0; }
  size_t done() const { return done_.size(); }
  // Also tells on stderr how far the part is.
  void Add(size_t index, const std::string& key, const nlohmann::json& rows, bool as_expected);

 private:
  void Append(const nlohmann::json& line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  const std::string part_;
  const size_t count_;
  std::set<std::string> done_;  // by earlier runs
  Mutex mutex_;
  std::ofstream file_ ABSL_GUARDED_BY(mutex_);
  size_t told_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace gemmd::e2e

#endif  // GEMMD_TESTS_E2E_FORMAT_JOURNAL_H_
