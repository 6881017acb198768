// What    Which entries this process has purged while somebody watches: what a prewarm or an import misses at its end
//         was not evicted then.
// Threads Every method is thread-safe.
#ifndef GEMMD_KERNELS_PURGE_RECORD_H_
#define GEMMD_KERNELS_PURGE_RECORD_H_

#include <set>
#include <string>

#include "kernels/base/mutex.h"

namespace gemmd {

class PurgeRecord {
 public:
  // From its beginning to its end keys are kept.
  class Watch {
   public:
    explicit Watch(PurgeRecord& record) : record_(record) {
      MutexLock lock(record_.mutex_);
      ++record_.watches_;
    }
    ~Watch() {
      MutexLock lock(record_.mutex_);
      if (--record_.watches_ == 0) record_.keys_.clear();
    }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    bool Has(const std::string& key) const {
      MutexLock lock(record_.mutex_);
      return record_.keys_.count(key) != 0;
    }

   private:
    PurgeRecord& record_;
  };

  // `key` is about to be removed.
  void Add(const std::string& key) {
    MutexLock lock(mutex_);
    if (watches_ > 0) keys_.insert(key);
  }

 private:
  Mutex mutex_;
  int watches_ ABSL_GUARDED_BY(mutex_) = 0;
  std::set<std::string> keys_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd

#endif  // GEMMD_KERNELS_PURGE_RECORD_H_
