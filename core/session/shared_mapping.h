// What    Memory that regions share: one open of an allocation for all of them.
// States  LIVE -> STALE: the client has other memory at the same handle. A stale mapping serves no
//         new request; it is released when the last request in flight is done with it.
// Errors  Open: the device's; FailedPrecondition IPC_OPEN_FAILED when the stale mapping at the same
//         handle is not released within a second, because the driver would hand out the old memory
//         again.
// Threads Thread-safe. Concurrent opens of one allocation share one call of the device.
#ifndef GEMMD_CORE_SESSION_SHARED_MAPPING_H_
#define GEMMD_CORE_SESSION_SHARED_MAPPING_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "core/exec/device.h"
#include "core/session/reaper.h"
#include "kernels/base/mutex.h"

namespace gemmd {

class SharedMapping {
 public:
  explicit SharedMapping(std::shared_ptr<Memory> memory);

  // Memory for one request, or null when stale.
  std::shared_ptr<Memory> Acquire() const;
  void MarkStale();

  // Facts that stay when the memory is gone.
  uint64_t size() const { return size_; }
  const char* kind() const { return kind_; }

 private:
  const uint64_t size_;
  const char* const kind_;
  mutable Mutex mutex_;
  std::shared_ptr<Memory> memory_ ABSL_GUARDED_BY(mutex_);
};

class MappingTable {
 public:
  // Identity of an allocation as its exporter names it. `exporter` tells processes apart, so that
  // one client cannot declare the memory of another stale.
  struct Key {
    std::string device;
    std::string exporter;
    std::string handle;
    auto operator<=>(const Key&) const = default;
  };
  using OpenFunction = std::function<absl::StatusOr<std::unique_ptr<Memory>>()>;

  // The mapping of `key`, opened by `open` unless it is open already with the same buffer_id.
  // Another buffer_id makes the open one stale; 0 is unknown and matches every id. `reaper`
  // releases the memory.
  absl::StatusOr<std::shared_ptr<SharedMapping>> Open(const Key& key, uint64_t buffer_id,
                                                      Reaper& reaper, const OpenFunction& open);

 private:
  struct Entry {
    bool opening = false;
    uint64_t buffer_id = 0;
    std::weak_ptr<SharedMapping> mapping;
    std::weak_ptr<void> open_token;  // expires when the device has closed the memory
  };
  // The live mapping that serves this open, or null after reserving the entry for the caller.
  std::shared_ptr<SharedMapping> FindOrReserve(const Key& key, uint64_t buffer_id);
  absl::StatusOr<std::shared_ptr<SharedMapping>> OpenReserved(const Key& key, Reaper& reaper,
                                                              const OpenFunction& open);
  absl::Status WaitUntilClosed(const Key& key);
  void DropExpired() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar changed_;
  std::map<Key, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = 64;
};

}  // namespace gemmd

#endif  // GEMMD_CORE_SESSION_SHARED_MAPPING_H_
