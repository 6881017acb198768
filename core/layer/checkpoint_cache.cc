#include "core/layer/checkpoint_cache.h"

#include <algorithm>
#include <utility>

#include "core/layer/file_identity.h"
#include "kernels/base/status.h"

namespace gemmd {

absl::StatusOr<std::shared_ptr<const Checkpoint>> CheckpointCache::Open(
    const std::filesystem::path& directory) {
  // Before the files are read: should they change meanwhile, nobody finds them under this identity again.
  GEMMD_ASSIGN_OR_RETURN(const std::string identity, FileIdentity(directory));
  return Open(directory, identity);
}

absl::StatusOr<std::shared_ptr<const Checkpoint>> CheckpointCache::Open(
    const std::filesystem::path& directory, const std::string& identity) {
  const std::shared_ptr<Entry> entry = Find(directory, identity);
  MutexLock lock(entry->mutex);
  if (entry->checkpoint != nullptr) return entry->checkpoint;
  auto opened = Checkpoint::Open(directory, roots_);
  if (!opened.ok()) {
    Forget(entry);
    return opened.status();
  }
  entry->checkpoint = *std::move(opened);
  return entry->checkpoint;
}

size_t CheckpointCache::size() const {
  MutexLock lock(mutex_);
  return entries_.size();
}

std::shared_ptr<CheckpointCache::Entry> CheckpointCache::Find(
    const std::filesystem::path& directory, const std::string& identity) {
  MutexLock lock(mutex_);
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const auto& entry) { return entry->directory == directory; });
  if (found != entries_.end() && (*found)->identity == identity) {
    entries_.splice(entries_.begin(), entries_, found);
    return entries_.front();
  }
  if (found != entries_.end()) entries_.erase(found);
  auto entry = std::make_shared<Entry>();
  entry->directory = directory;
  entry->identity = identity;
  entries_.push_front(entry);
  if (entries_.size() > most_) entries_.pop_back();
  return entry;
}

void CheckpointCache::Forget(const std::shared_ptr<Entry>& entry) {
  MutexLock lock(mutex_);
  entries_.remove(entry);
}

}  // namespace gemmd
