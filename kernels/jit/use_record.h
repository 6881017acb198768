// What    Which keys of a cache directory were used last, and which are loaded by a living process.
//           uses                  one line of 64 digits per use, appended; the later line is the
//           later
//                                 use. No clock is read, so a clock that goes back changes nothing.
//           <pid>-<n>.loaded      keys that a process has loaded, one a line; flock held by it
//         Both are advice for eviction: a lost line costs at most one compilation. Lines that the disk
//         does not take are kept, count for this process, and are written with a later one.
// Threads Every method is thread-safe; several processes may share the directory.
#ifndef GEMMD_KERNELS_JIT_USE_RECORD_H_
#define GEMMD_KERNELS_JIT_USE_RECORD_H_

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "kernels/base/mutex.h"
#include "kernels/jit/file_calls.h"

namespace gemmd::jit {

// Keys on their way to a file, a line each; a key that comes again moves to the end. Not thread-safe.
class UnwrittenLines {
 public:
  void Add(const std::string& key);
  // All of them with one write, so that lines of several processes do not mix. They stay when it fails.
  void AppendTo(const FileCalls& files, int fd, const std::filesystem::path& path);

  const std::vector<std::string>& keys() const { return keys_; }  // the last used last
  const std::string& problem() const { return problem_; }  // of the last attempt; empty: none

 private:
  std::vector<std::string> keys_;
  std::string problem_;
};

class UseRecord {
 public:
  explicit UseRecord(std::filesystem::path directory, const FileCalls& files = SystemFileCalls());
  ~UseRecord();  // records the keys it had loaded as used last, removes its list
  UseRecord(const UseRecord&) = delete;
  UseRecord& operator=(const UseRecord&) = delete;

  void Used(const std::string& key);
  // `key` is loaded by this process until the end.
  void Loaded(const std::string& key);

  // Why lines of this process are not written; empty when all are.
  std::string problem() const;

  // Position of the last use of every key that was ever used; larger is later.
  std::map<std::string, uint64_t> Order() const;
  // Keys loaded by this process or another living one. Lists of dead processes are removed.
  std::set<std::string> AllLoaded() const;
  // Rewrites the record to one line per key of `existing` once it has grown beyond that by far.
  // The caller holds the directory's tidy lock.
  void Compact(const std::set<std::string>& existing) const;

 private:
  void AppendUses() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AppendLoaded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OpenList() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::filesystem::path directory_;
  const FileCalls& files_;
  mutable Mutex mutex_;
  std::set<std::string> loaded_ ABSL_GUARDED_BY(mutex_);
  std::filesystem::path list_path_ ABSL_GUARDED_BY(mutex_);
  int list_fd_ ABSL_GUARDED_BY(mutex_) = -1;
  UnwrittenLines uses_ ABSL_GUARDED_BY(mutex_);
  UnwrittenLines list_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_USE_RECORD_H_
