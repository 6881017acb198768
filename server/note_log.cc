#include "server/note_log.h"

#include "absl/strings/str_cat.h"
#include "server/logging.h"

namespace gemmd {

void NoteLog::Write(const std::string& path, const std::string& module, const std::vector<std::string>& notes) {
  for (const std::string& note : notes) {
    if (!Remember(absl::StrCat(path, "\n", module, "\n", note))) continue;
    LogWarn("checkpoint read", {{"path", path}, {"module", module}, {"note", note}});
  }
}

bool NoteLog::Remember(const std::string& line) {
  MutexLock lock(mutex_);
  if (!known_.insert(line).second) return false;
  oldest_first_.push_back(line);
  if (oldest_first_.size() > most_) {
    known_.erase(oldest_first_.front());
    oldest_first_.pop_front();
  }
  return true;
}

}  // namespace gemmd
