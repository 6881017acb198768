// What    How a prewarm went, kernel by kernel, for its line in the log.
// Threads Count by one thread at a time, as KernelStore::Prewarm tells its steps; Log behind it.
#ifndef GEMMD_SERVER_PREWARM_TALLY_H_
#define GEMMD_SERVER_PREWARM_TALLY_H_

#include <string>

#include "absl/status/status.h"
#include "core/prewarm.h"

namespace gemmd {

class PrewarmTally {
 public:
  void Count(const PrewarmStep& step);
  // "prewarm ended": a warning when kernels failed or were not stored, whatever the status.
  void Log(const absl::Status& status) const;

 private:
  int compiled_ = 0;
  int cached_ = 0;
  int failed_ = 0;
  int not_stored_ = 0;
  int no_kernel_ = 0;          // layers
  std::string first_problem_;  // of a kernel that failed or was not stored
};

}  // namespace gemmd

#endif  // GEMMD_SERVER_PREWARM_TALLY_H_
