#include "core/session/shared_mapping.h"

#include <thread>

#include "absl/time/clock.h"
#include "kernels/base/status.h"

namespace gemmd {
namespace {

// Carries the token that tells the table when the device really closed the memory.
class TokenMemory : public Memory {
 public:
  TokenMemory(std::unique_ptr<Memory> memory, std::shared_ptr<void> token)
      : token_(std::move(token)), memory_(std::move(memory)) {}
  uintptr_t address() const override { return memory_->address(); }
  uint64_t size() const override { return memory_->size(); }
  const char* kind() const override { return memory_->kind(); }

 private:
  const std::shared_ptr<void> token_;  // destroyed after the memory
  const std::unique_ptr<Memory> memory_;
};

}  // namespace

SharedMapping::SharedMapping(std::shared_ptr<Memory> memory)
    : size_(memory->size()), kind_(memory->kind()), memory_(std::move(memory)) {}

std::shared_ptr<Memory> SharedMapping::Acquire() const {
  MutexLock lock(mutex_);
  return memory_;
}

void SharedMapping::MarkStale() {
  std::shared_ptr<Memory> released;
  MutexLock lock(mutex_);
  released.swap(memory_);
}

absl::StatusOr<std::shared_ptr<SharedMapping>> MappingTable::Open(const Key& key,
                                                                  uint64_t buffer_id,
                                                                  Reaper& reaper,
                                                                  const OpenFunction& open) {
  if (std::shared_ptr<SharedMapping> live = FindOrReserve(key, buffer_id)) return live;
  absl::StatusOr<std::shared_ptr<SharedMapping>> mapping = OpenReserved(key, reaper, open);
  MutexLock lock(mutex_);
  Entry& entry = entries_[key];
  entry.opening = false;
  if (mapping.ok()) entry.mapping = *mapping;
  changed_.NotifyAll();
  return mapping;
}

std::shared_ptr<SharedMapping> MappingTable::FindOrReserve(const Key& key, uint64_t buffer_id) {
  MutexLock lock(mutex_);
  DropExpired();
  changed_.Wait(mutex_, [&] { return !entries_[key].opening; });
  Entry& entry = entries_[key];
  if (std::shared_ptr<SharedMapping> mapping = entry.mapping.lock()) {
    if (buffer_id == 0 || buffer_id == entry.buffer_id) return mapping;
    mapping->MarkStale();
  }
  entry.opening = true;
  entry.buffer_id = buffer_id;
  entry.mapping.reset();
  return nullptr;
}

absl::StatusOr<std::shared_ptr<SharedMapping>> MappingTable::OpenReserved(
    const Key& key, Reaper& reaper, const OpenFunction& open) {
  GEMMD_RETURN_IF_ERROR(WaitUntilClosed(key));
  GEMMD_ASSIGN_OR_RETURN(std::unique_ptr<Memory> memory, open());
  const auto token = std::make_shared<char>();
  {
    MutexLock lock(mutex_);
    entries_[key].open_token = token;
  }
  return std::make_shared<SharedMapping>(
      reaper.Guard(std::make_unique<TokenMemory>(std::move(memory), token)));
}

absl::Status MappingTable::WaitUntilClosed(const Key& key) {
  const absl::Time deadline = absl::Now() + absl::Seconds(1);
  while (true) {
    {
      MutexLock lock(mutex_);
      if (entries_[key].open_token.expired()) return absl::OkStatus();
    }
    if (absl::Now() >= deadline) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return Error(absl::StatusCode::kFailedPrecondition, "IPC_OPEN_FAILED",
               "the earlier memory at this handle is still being released; register again later");
}

void MappingTable::DropExpired() {
  if (entries_.size() < sweep_at_) return;
  for (auto it = entries_.begin(); it != entries_.end();) {
    const Entry& entry = it->second;
    const bool dead = !entry.opening && entry.mapping.expired() && entry.open_token.expired();
    it = dead ? entries_.erase(it) : std::next(it);
  }
  sweep_at_ = 2 * entries_.size() + 64;
}

}  // namespace gemmd
