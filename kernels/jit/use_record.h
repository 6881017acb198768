// What    Which keys of a cache directory were used last, and which are loaded by a living process.
//           uses                  one line of 64 digits per use, appended; the later line is the
//           later
//                                 use. No clock is read, so a clock that goes back changes nothing.
//           <pid>-<n>.loaded      keys that a process has loaded, one a line; flock held by it
//         Both are advice for eviction: a lost line costs at most one compilation.
// Threads Every method is thread-safe; several processes may share the directory.
#ifndef GEMMD_KERNELS_JIT_USE_RECORD_H_
#define GEMMD_KERNELS_JIT_USE_RECORD_H_

#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "kernels/base/mutex.h"

namespace gemmd::jit {

class UseRecord {
 public:
  explicit UseRecord(std::filesystem::path directory);
  ~UseRecord();  // records the keys it had loaded as used last, removes its list
  UseRecord(const UseRecord&) = delete;
  UseRecord& operator=(const UseRecord&) = delete;

  void Used(const std::string& key);
  // `key` is loaded by this process until the end.
  void Loaded(const std::string& key);

  // Position of the last use of every key that was ever used; larger is later.
  std::map<std::string, uint64_t> Order() const;
  // Keys loaded by this process or another living one. Lists of dead processes are removed.
  std::set<std::string> AllLoaded() const;
  // Rewrites the record to one line per key of `existing` once it has grown beyond that by far.
  // The caller holds the directory's tidy lock.
  void Compact(const std::set<std::string>& existing) const;

 private:
  void OpenList() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::filesystem::path directory_;
  mutable Mutex mutex_;
  std::set<std::string> loaded_ ABSL_GUARDED_BY(mutex_);
  std::filesystem::path list_path_ ABSL_GUARDED_BY(mutex_);
  int list_fd_ ABSL_GUARDED_BY(mutex_) = -1;
};

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_USE_RECORD_H_
