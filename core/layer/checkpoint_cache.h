// What    The checkpoints that layers were read from last, opened: who loads the hundreds of layers of one
//         parses its config, index and headers once. A checkpoint is known by its directory and the
//         identity of its files (file_identity.h), taken anew at every read, so that one whose files
//         changed is opened again.
// Memory  A few checkpoints: names, shapes and offsets of their tensors, no tensors and no open files.
// Errors  As Checkpoint::Open and ReadLayer (core/checkpoint/checkpoint.h). None is remembered.
// Threads Thread-safe; no lock that another checkpoint needs is held while files are read.
#ifndef GEMMD_CORE_LAYER_CHECKPOINT_CACHE_H_
#define GEMMD_CORE_LAYER_CHECKPOINT_CACHE_H_

#include <cstddef>
#include <filesystem>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/checkpoint/checkpoint.h"
#include "kernels/base/mutex.h"

namespace gemmd {

class CheckpointCache {
 public:
  // `roots` as Checkpoint::Open takes them.
  explicit CheckpointCache(std::vector<std::filesystem::path> roots, size_t most = 4)
      : roots_(std::move(roots)), most_(most) {}

  // The checkpoint in `directory` as its files are now.
  absl::StatusOr<std::shared_ptr<const Checkpoint>> Open(const std::filesystem::path& directory);
  // The same as it was when its files had `identity`, or as it is now.
  absl::StatusOr<std::shared_ptr<const Checkpoint>> Open(const std::filesystem::path& directory,
                                                         const std::string& identity);

  size_t size() const;

 private:
  struct Entry {
    std::filesystem::path directory;
    std::string identity;
    Mutex mutex;  // held while it is opened
    std::shared_ptr<const Checkpoint> checkpoint ABSL_GUARDED_BY(mutex);
  };

  // The entry of these files, put in front; one of the directory's files as they were before goes, and so
  // does the one that was not used for longest.
  std::shared_ptr<Entry> Find(const std::filesystem::path& directory, const std::string& identity);
  void Forget(const std::shared_ptr<Entry>& entry);

  const std::vector<std::filesystem::path> roots_;
  const size_t most_;
  mutable Mutex mutex_;
  std::list<std::shared_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);  // used last comes first
};

}  // namespace gemmd

#endif  // GEMMD_CORE_LAYER_CHECKPOINT_CACHE_H_
