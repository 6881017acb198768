// What    Lines of the log about tensors that other programs read otherwise (core/checkpoint/reading_notes.h): one for
//         each, however many workers and ranks register its module.
// Memory  The last `most` of them; who is forgotten is told of again.
// Threads Thread-safe.
#ifndef GEMMD_SERVER_NOTE_LOG_H_
#define GEMMD_SERVER_NOTE_LOG_H_

#include <cstddef>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include "kernels/base/mutex.h"

namespace gemmd {

class NoteLog {
 public:
  explicit NoteLog(size_t most = 4096) : most_(most) {}

  // Of `module` of the checkpoint at `path`.
  void Write(const std::string& path, const std::string& module, const std::vector<std::string>& notes);

 private:
  bool Remember(const std::string& line);  // false: it knows it

  const size_t most_;
  Mutex mutex_;
  std::set<std::string> known_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::string> oldest_first_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd

#endif  // GEMMD_SERVER_NOTE_LOG_H_
