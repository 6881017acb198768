// What    Kernel entries in one directory, and one lock per key between the processes that share
//         it.
//           <key>.kernel          entry (cache_entry.h), complete from the moment it has this name
//           <key>.quarantine      why the kernel may not run (quarantine.h)
//           <key>.lock            held (flock) by the process that compiles <key>; gone afterwards
//           <key>.kernel.<pid>-<n>.tmp   entry being written, flock held by its writer
//           tidy.lock             held by the process that evicts
//           uses, <pid>-<n>.loaded   use_record.h
//         The system frees a flock when its process dies, so nothing of a dead process blocks
//         anybody. Names hold everything: mtimes, clocks, PATH and HOME play no role.
// Units   Sizes in bytes. max_bytes counts entries only; 0 = no limit.
// Errors  Open: FailedPrecondition CACHE_DIRECTORY. Read: NotFound, Unavailable CACHE_READ (it is there and
//         cannot be opened), or DataLoss with a reason of cache_entry.h. Write, Drop: Unavailable CACHE_WRITE.
// Threads Every method is thread-safe.
#ifndef GEMMD_KERNELS_JIT_DISK_TIER_H_
#define GEMMD_KERNELS_JIT_DISK_TIER_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/mutex.h"
#include "kernels/jit/compiler.h"
#include "kernels/jit/file_calls.h"
#include "kernels/jit/key_lock.h"
#include "kernels/jit/use_record.h"

namespace gemmd::jit {

struct DiskOptions {
  std::filesystem::path directory;
  uint64_t max_bytes = 0;
  const FileCalls* files = &SystemFileCalls();
};

class DiskTier {
 public:
  struct Eviction {
    uint64_t entries = 0;
    uint64_t bytes = 0;
  };
  struct Listed {
    std::string key;
    uint64_t bytes = 0;
    uint64_t last_use = 0;  // larger is later; 0 = never used
    bool loaded = false;    // by a living process
  };

  // Creates the directory with mode 0700 when missing. Refuses one that others may write to: a
  // kernel from there would run in this process's name.
  static absl::StatusOr<std::unique_ptr<DiskTier>> Open(const DiskOptions& options);

  // What is wrong now, or empty: why the directory takes no kernels (until it takes one), that it lies on a network,
  // why uses are not recorded (other processes then take kernels of this one for older).
  std::string warning() const;
  const std::filesystem::path& directory() const { return options_.directory; }

  absl::StatusOr<CompiledKernel> Read(const std::string& key) const;
  // As Read, without the cubin and without its verification.
  absl::StatusOr<CompiledKernel> ReadFacts(const std::string& key) const;
  // The entry's bytes, whole and verified.
  absl::StatusOr<std::string> ReadBytes(const std::string& key) const;
  absl::Status Write(const CompiledKernel& kernel);
  absl::Status WriteBytes(const std::string& key, absl::string_view bytes);
  // OK: there is no such entry afterwards.
  absl::Status Drop(const std::string& key);
  // Whether there is an entry, of whatever content.
  bool Has(const std::string& key) const;

  // The text of `key`'s quarantine record; empty when there is none.
  std::string ReadQuarantine(const std::string& key) const;
  void WriteQuarantine(const std::string& key, absl::string_view text);
  absl::Status DropQuarantine(const std::string& key);  // as Drop
  std::vector<std::string> Quarantined() const;  // keys
  KeyLock TryLock(const std::string& key) const;

  // `key` was just used; with `keep`, this process has it loaded until the end.
  void Used(const std::string& key, bool keep);
  // Removes least recently used entries beyond max_bytes, never one that a living process has
  // loaded. Does nothing while another process does it.
  Eviction Evict();

  // Whether the directory can be listed now. Unavailable CACHE_READ.
  absl::Status CheckListable() const;
  // Every entry by its name, most recently used first; the files are not read. None where it cannot be listed.
  std::vector<Listed> List() const;
  // Of all entries, other processes' too: counted anew when the last count is older than a second.
  uint64_t bytes() const;
  uint64_t max_bytes() const { return options_.max_bytes; }

 private:
  explicit DiskTier(const DiskOptions& options)
      : options_(options), uses_(options.directory, *options.files) {}
  std::filesystem::path EntryPath(const std::string& key) const;
  std::filesystem::path QuarantinePath(const std::string& key) const;
  absl::StatusOr<std::string> ReadFile(const std::string& key) const;
  void RemoveAbandonedFiles() const;

  void Wrote(const absl::Status& status);

  const DiskOptions options_;
  std::string network_;  // a warning, or empty
  UseRecord uses_;
  mutable Mutex mutex_;
  std::string write_problem_ ABSL_GUARDED_BY(mutex_);  // of the last attempt
  mutable uint64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  mutable absl::Time next_count_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_DISK_TIER_H_
