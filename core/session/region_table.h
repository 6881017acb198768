// What    Every region of the node, and each session's quota of them.
// Errors  Find: NotFound REGION_NOT_FOUND, PermissionDenied NOT_OWNER, Aborted STALE_EPOCH.
//         Reserve: ResourceExhausted QUOTA. Find, Reserve, Commit: Aborted SESSION_ENDED.
// Threads Thread-safe. Regions leave the table under its lock but are destroyed outside of it.
#ifndef GEMMD_CORE_SESSION_REGION_TABLE_H_
#define GEMMD_CORE_SESSION_REGION_TABLE_H_

#include <cstdint>
#include <memory>
#include <set>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/session/region.h"

namespace gemmd {

class RegionTable {
 public:
  struct Limits {
    int regions = 0;
    uint64_t bytes = 0;
  };
  struct Totals {
    int regions = 0;
    uint64_t bytes = 0;
  };

  explicit RegionTable(const Limits& limits) : limits_(limits) {}

  void AddSession(uint64_t session_id);
  // Regions of the session, for the caller to destroy. Later reservations fail.
  std::vector<std::shared_ptr<const Region>> RemoveSession(uint64_t session_id);

  // Quota for one region of `bytes`; ends with Commit or Cancel.
  absl::Status Reserve(uint64_t session_id, uint64_t bytes);
  void Cancel(uint64_t session_id, uint64_t bytes);
  // Gives `region` its id and generation and makes it visible. An error cancels.
  absl::StatusOr<RegionInfo> Commit(Region region);

  absl::StatusOr<std::shared_ptr<const Region>> Find(uint64_t session_id,
                                                     const RegionRef& ref) const;
  // Lookups fail from now on. An unknown id is no error, nor is a session that has ended: the
  // result is null then.
  absl::StatusOr<std::shared_ptr<const Region>> Remove(uint64_t session_id, const RegionRef& ref);

  std::vector<RegionInfo> List(uint64_t session_id) const;
  Totals TotalsOf(uint64_t session_id) const;
  Totals totals() const;

 private:
  struct Usage {
    std::set<uint64_t> ids;
    Totals totals;  // with reservations
  };

  const Limits limits_;
  mutable Mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<const Region>> regions_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, Usage> sessions_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_generation_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace gemmd

#endif  // GEMMD_CORE_SESSION_REGION_TABLE_H_
