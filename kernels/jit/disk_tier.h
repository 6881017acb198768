// What    Kernel entries in one directory, and one lock per key between the processes that share
//         it.
//           <key>.kernel          entry (cache_entry.h), complete from the moment it has this name
//           <key>.lock            held (flock) by the process that compiles <key>; gone afterwards
//           <key>.<pid>-<n>.tmp   entry being written, flock held by its writer
//         The system frees a flock when its process dies, so nothing of a dead process blocks
//         anybody. Names hold everything: mtimes, PATH and HOME play no role.
// Errors  Open: FailedPrecondition CACHE_DIRECTORY. Read: NotFound, or DataLoss
//         CACHE_ENTRY_DAMAGED. Write: Unavailable CACHE_WRITE.
// Threads Every method is thread-safe.
#ifndef GEMMD_KERNELS_JIT_DISK_TIER_H_
#define GEMMD_KERNELS_JIT_DISK_TIER_H_

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/jit/compiler.h"

namespace gemmd::jit {

// Exclusive right to build one key; given back at the end.
class KeyLock {
 public:
  enum class State {
    kHeld,         // ours
    kBusy,         // another process, or another cache of this one, has it
    kUnavailable,  // the directory takes no locks: go on without
  };
  explicit KeyLock(std::filesystem::path path);  // tries once, never waits
  KeyLock(KeyLock&& other) noexcept;
  KeyLock& operator=(KeyLock&&) = delete;
  ~KeyLock();

  State state() const { return state_; }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  State state_ = State::kUnavailable;
};

class DiskTier {
 public:
  // Creates `directory` with mode 0700 when missing. Refuses one that others may write to: a kernel
  // from there would run in this process's name.
  static absl::StatusOr<DiskTier> Open(const std::filesystem::path& directory);

  absl::StatusOr<CompiledKernel> Read(const std::string& key) const;
  absl::Status Write(const CompiledKernel& kernel) const;
  void Drop(const std::string& key) const;
  KeyLock TryLock(const std::string& key) const;

 private:
  explicit DiskTier(std::filesystem::path directory) : directory_(std::move(directory)) {}
  std::filesystem::path EntryPath(const std::string& key) const;
  void RemoveAbandonedFiles() const;

  std::filesystem::path directory_;
};

}  // namespace gemmd::jit

#endif  // GEMMD_KERNELS_JIT_DISK_TIER_H_
